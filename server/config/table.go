package config

import (
	"math"
	"strings"
)

// Bounds that many rows share, as Redis has them.
const (
	maxInt  = math.MaxInt32
	maxLong = math.MaxInt64
	maxPort = math.MaxUint16
)

// table returns all rows, in the order in which CONFIG GET lists them.
func table() []param {
	var rows []param
	for _, part := range [][]param{
		networkRows(), processRows(), securityRows(), dataRows(), encodingRows(), replicationRows(),
		clusterRows(), watchRows(), ownRows(), refusedRows(), persistenceRows(), memoryRows(), systemRows(),
	} {
		rows = append(rows, part...)
	}
	return rows
}

// The helpers below make a row read as a line: names, default, range, flags.
// names is the name, then the older spelling if there is one.

func row(names string, k kind, def string, f flag) param {
	name, alias, _ := strings.Cut(names, " ")
	return param{name: name, alias: alias, kind: k, def: def, flags: f}
}

func yesNo(names, def string, f flag) param { return row(names, kindBool, def, f) }

func text(names, def string, f flag) param { return row(names, kindString, def, f) }

func special(names, def string, f flag, check func([]string, string) (string, error)) param {
	p := row(names, kindSpecial, def, f)
	p.check = check
	return p
}

func number(names, def string, lo int64, hi uint64, unit string, f flag) param {
	p := row(names, kindInt, def, f)
	p.min, p.max, p.unit = lo, hi, unit
	return p
}

func memory(names, def string, lo int64, hi uint64, f flag) param {
	p := row(names, kindMemory, def, f)
	p.min, p.max, p.unit = lo, hi, "bytes"
	return p
}

func enum(names, def string, f flag, choices ...string) param {
	p := row(names, kindEnum, def, f)
	p.choices = choices
	return p
}

func bits(names, def string, f flag, choices ...string) param {
	p := row(names, kindBits, def, f|multi)
	p.choices = choices
	return p
}

// with adds a rule to a row of a plain kind.
func (p param) with(check func([]string, string) (string, error)) param {
	p.check = check
	return p
}

// noting says of ignored and noted rows why they are, of refused rows what to do,
// of fixed rows what holds instead.
func noting(why string, f flag, rows ...param) []param {
	for i := range rows {
		rows[i].flags |= f
		rows[i].why = why
	}
	return rows
}

// former says whether name is a directive of older Redis versions that changes nothing any
// more: its line is accepted, CONFIG GET does not know it.
func former(name string) bool {
	switch name {
	case "list-max-ziplist-entries", "list-max-ziplist-value", "lua-replicate-commands":
		return true
	}
	return false
}

// A statement is a line of a file that is no setting: CONFIG GET does not show
// it, and CONFIG REWRITE keeps it as it is.
type statement struct {
	name    string
	minArgs int
	maxArgs int
	refusal string // why such a line ends the start
}

const anyArgs = math.MaxInt32

func statements() []statement {
	return []statement{
		{"include", 1, 1, ""},
		{"rename-command", 2, 2, "renaming or removing commands is not supported yet, and ignoring it would leave them open"},
		{"user", 1, anyArgs, "access control lists are not supported yet, and ignoring them would leave the server open"},
		{"loadmodule", 1, anyArgs, "modules are not supported"},
		{"sentinel", 0, anyArgs, "this server is no sentinel"},
	}
}

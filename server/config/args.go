package config

import "strings"

// An option is one setting of the command line.
type option struct {
	name string
	args []string
	// whole is set when name and value came as one argument ("--port 7000"), which
	// is then read like a line.
	whole string
}

// commandLine is what the arguments say: [FILE] [-] [--name value ...] [-].
type commandLine struct {
	file    string // "": none
	stdin   bool   // "-" was the first or the last argument
	options []option
	stray   []string // words that belong to no option
}

// parseArgs reads a command line as redis-server does. A value may itself begin
// with two dashes when it is the first after its option. --save without a value
// is --save "". The first option may lack its dashes. Besides, --name=value is
// taken, which Redis refuses.
func parseArgs(args []string) commandLine {
	var c commandLine
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		c.file, args = args[0], args[1:]
	}
	closed := true // the last option has its value, or needs none
	for i, a := range args {
		last := i == len(args)-1
		switch {
		case a == "-" && (i == 0 && c.file == "" || last):
			c.stdin = true
		case closed && strings.HasPrefix(a, "--"):
			var o option
			o, closed = newOption(a[2:], last, !last && strings.HasPrefix(args[i+1], "--"))
			c.options = append(c.options, o)
		case len(c.options) == 0 && (strings.HasPrefix(a, "-") || len(c.stray) > 0):
			c.stray = append(c.stray, a)
		case len(c.options) == 0:
			c.options = append(c.options, option{name: a}) // its dashes left out, which Redis takes
			closed = true
		default:
			o := &c.options[len(c.options)-1]
			o.args = append(o.args, a)
			if o.whole != "" {
				o.whole += " " + string(appendQuoted(nil, a))
			}
			closed = true
		}
	}
	return c
}

// newOption starts an option. closed says that another one may follow at once.
func newOption(text string, last, optionNext bool) (o option, closed bool) {
	if words, err := splitWords(text); err != nil || len(words) > 1 {
		return option{name: text, whole: text}, true
	}
	name := strings.TrimSpace(text)
	if name, value, found := strings.Cut(name, "="); found {
		return option{name: name, args: []string{value}}, true
	}
	o = option{name: name}
	if strings.EqualFold(name, "save") && (last || optionNext) {
		o.args = []string{""}
		return o, true
	}
	return o, false
}

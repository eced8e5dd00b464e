package command

import (
	"math"
	"strconv"

	"cairn/engine/layout"
	"cairn/internal/resp"
)

// expireKind says how a time to live was given.
type expireKind uint8

const (
	expireNone expireKind = iota
	expireEX              // seconds from now
	expirePX              // milliseconds from now
	expireEXAT            // Unix seconds
	expirePXAT            // Unix milliseconds
)

// stringOptions are what may follow SET and GETEX.
type stringOptions struct {
	nx, xx, get, keepTTL, persist bool

	expire expireKind
	at     int // the argument with the time
}

// parse reads the options from argument from on. The same option may be repeated, the last one counts; options
// that exclude each other may not.
func (o *stringOptions) parse(c *Ctx, from int, forSet bool) error {
	for i := from; i < len(c.Args); i++ {
		if kind := expireWord(c.Args[i]); kind != expireNone {
			if i+1 == len(c.Args) || o.keepTTL || o.persist || o.expire != expireNone && o.expire != kind {
				return ErrSyntax
			}
			o.expire, o.at = kind, i+1
			i++
			continue
		}
		switch {
		case forSet && c.Is(i, "nx") && !o.xx:
			o.nx = true
		case forSet && c.Is(i, "xx") && !o.nx:
			o.xx = true
		case forSet && c.Is(i, "get"):
			o.get = true
		case forSet && c.Is(i, "keepttl") && o.expire == expireNone:
			o.keepTTL = true
		case !forSet && c.Is(i, "persist") && o.expire == expireNone:
			o.persist = true
		default:
			return ErrSyntax
		}
	}
	return nil
}

func expireWord(b []byte) expireKind {
	switch {
	case resp.IsWord(b, "ex"):
		return expireEX
	case resp.IsWord(b, "px"):
		return expirePX
	case resp.IsWord(b, "exat"):
		return expireEXAT
	case resp.IsWord(b, "pxat"):
		return expirePXAT
	}
	return expireNone
}

// deadline gives the time that the options ask for, Unix milliseconds; 0 when they ask for none.
func (o *stringOptions) deadline(c *Ctx) (int64, error) {
	if o.expire == expireNone {
		return 0, nil
	}
	v, err := c.Int(o.at)
	if err != nil {
		return 0, err
	}
	seconds := o.expire == expireEX || o.expire == expireEXAT
	relative := o.expire == expireEX || o.expire == expirePX
	if v <= 0 || seconds && v > math.MaxInt64/1000 {
		return 0, errExpireTime(c)
	}
	if seconds {
		v *= 1000
	}
	if relative {
		if v > math.MaxInt64-c.NowMs {
			return 0, errExpireTime(c)
		}
		v += c.NowMs
	}
	return v, nil
}

func errExpireTime(c *Ctx) error {
	return Reply("ERR invalid expire time in '" + c.Cmd.FullName() + "' command")
}

// formatInt gives an integer's text.
func formatInt(n int64) []byte { return strconv.AppendInt(make([]byte, 0, intTextMax), n, 10) }

func getex(c *Ctx) error {
	var o stringOptions
	if err := o.parse(c, 2, false); err != nil {
		return err
	}
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	c.CountRead(k)
	if !k.Exists() {
		c.W.Null()
		return nil
	}
	deadline, err := o.deadline(c)
	if err != nil {
		return err
	}
	if err := replyWhole(c, k); err != nil {
		return err
	}
	absolute := o.expire == expireEXAT || o.expire == expirePXAT
	switch {
	case absolute && deadline <= c.NowMs && !c.Replaying:
		deleteString(c, k)
	case o.expire != expireNone:
		k.Rec.Deadline = deadline
		c.Txn.Put(k)
		c.Propagate("PEXPIREAT", k.Name, formatInt(deadline))
		c.Event('g', "expire", k.Name)
	case o.persist && k.Rec.Deadline != 0:
		k.Rec.Deadline = 0
		c.Txn.Put(k)
		c.Propagate("PERSIST", k.Name)
		c.Event('g', "persist", k.Name)
	}
	return nil
}

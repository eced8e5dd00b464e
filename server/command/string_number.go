package command

import (
	"math"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// floatTextMax is one more than the longest text that counts as a number for INCRBYFLOAT, bytes.
const floatTextMax = 5 * 1024

func addFixed(n int64) Handler {
	return func(c *Ctx) error { return addInt(c, n) }
}

func incrby(c *Ctx) error {
	n, err := c.Int(2)
	if err != nil {
		return err
	}
	return addInt(c, n)
}

func decrby(c *Ctx) error {
	n, err := c.Int(2)
	if err != nil {
		return err
	}
	if n == math.MinInt64 {
		return Reply("ERR decrement would overflow")
	}
	return addInt(c, -n)
}

func addInt(c *Ctx, n int64) error {
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	old, err := intValue(k)
	if err != nil {
		return err
	}
	if n < 0 && old < math.MinInt64-n || n > 0 && old > math.MaxInt64-n {
		return Reply("ERR increment or decrement would overflow")
	}
	storeString(c, k, formatInt(old+n), EncInt, k.Rec.Deadline)
	c.Event('$', "incrby", k.Name)
	c.W.Int(old + n)
	return nil
}

// intValue reads the string at k as an integer, a missing one as 0. A longer text than an integer's is not read:
// whatever is that short is in the record.
func intValue(k *engine.Key) (int64, error) {
	if !k.Exists() {
		return 0, nil
	}
	if k.Rec.Form != layout.Inline {
		return 0, ErrNotInteger
	}
	n, ok := resp.ParseInt(k.Rec.Body)
	if !ok {
		return 0, ErrNotInteger
	}
	return n, nil
}

func incrbyfloat(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	var old resp.LongDouble
	if k.Exists() {
		if stringLen(k) >= floatTextMax {
			return ErrNotFloat
		}
		text, err := c.Txn.Value(k)
		if err != nil {
			return err
		}
		var ok bool
		if old, ok = resp.ParseLongDouble(text); !ok {
			return ErrNotFloat
		}
	}
	n, ok := resp.ParseLongDouble(c.Args[2])
	if !ok {
		return ErrNotFloat
	}
	sum, ok := old.Add(n)
	if !ok {
		return Reply("ERR increment would produce NaN or Infinity")
	}
	text := sum.Append(nil)
	// Redis notes "embstr" here even for an integer, and "int" on its replicas and after a restart. Ours is what the
	// logged SET gives, the same everywhere.
	storeString(c, k, text, stringEncoding(text), k.Rec.Deadline)
	c.Event('$', "incrbyfloat", k.Name)
	// Others get the sum, so that no difference in precision ever makes theirs another.
	c.Propagate("SET", k.Name, text, []byte("KEEPTTL"))
	c.W.Bulk(text)
	return nil
}

package command

import (
	"bytes"
	"strings"

	"cairn/internal/resp"
)

// flagName is a flag with the word that COMMAND INFO has for it.
type flagName struct {
	flag Flags
	name string
}

// shownFlags lists the flags in Redis's order.
func shownFlags() []flagName {
	return []flagName{
		{Write, "write"},
		{ReadOnly, "readonly"},
		{DenyOOM, "denyoom"},
		{Admin, "admin"},
		{PubSub, "pubsub"},
		{NoScript, "noscript"},
		{Blocking, "blocking"},
		{Loading, "loading"},
		{Stale, "stale"},
		{SkipMonitor, "skip_monitor"},
		{SkipSlowlog, "skip_slowlog"},
		{Asking, "asking"},
		{Fast, "fast"},
		{NoAuth, "no_auth"},
		{NoMandatoryKeys, "no_mandatory_keys"},
		{NoAsyncLoading, "no_async_loading"},
		{NoMulti, "no_multi"},
		{MovableKeys, "movablekeys"},
		{AllowBusy, "allow_busy"},
	}
}

// FlagNames are the flags that COMMAND INFO shows.
func (c *Command) FlagNames() (names []string) {
	flags := c.Flags
	if _, _, _, movable := c.legacyRange(); movable {
		flags |= MovableKeys
	}
	for _, f := range shownFlags() {
		if flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	return names
}

// Categories are all categories that rights can be given by, in Redis's order.
func Categories() []string {
	return []string{
		"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo",
		"stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
	}
}

// InCategory says whether the command belongs to a category, whose name is in lower case.
func (c *Command) InCategory(name string) bool {
	switch name {
	case "write":
		return c.Is(Write)
	case "read":
		return c.Is(ReadOnly) && c.Group != "scripting"
	case "keyspace":
		return c.Is(Keyspace)
	case "fast":
		return c.Is(Fast)
	case "slow":
		return !c.Is(Fast)
	case "blocking":
		return c.Is(Blocking)
	case "pubsub":
		return c.Is(PubSub)
	}
	for word := range strings.FieldsSeq(c.ACL) {
		if word == name {
			return true
		}
	}
	switch name {
	case "admin":
		return c.Is(Admin)
	case "dangerous":
		return c.Is(Dangerous) || c.Is(Admin)
	}
	return c.groupCategory() == name
}

// groupCategory is the category that a command's group implies. A container has none.
func (c *Command) groupCategory() string {
	if len(c.Sub) > 0 {
		return ""
	}
	switch c.Group {
	case "transactions":
		return "transaction"
	case "sorted-set":
		return "sortedset"
	case "string", "hash", "list", "set", "stream", "bitmap", "hyperloglog", "geo", "connection", "scripting":
		return c.Group
	}
	return ""
}

// CategoryNames are the command's categories, each with its @, in Redis's order.
func (c *Command) CategoryNames() (names []string) {
	for _, name := range Categories() {
		if c.InCategory(name) {
			names = append(names, "@"+name)
		}
	}
	return names
}

// LegacyKeys is the one range of keys that older clients know: first and last argument and step, computed from
// the key specs as Redis does.
func (c *Command) LegacyKeys() (first, last, step int) {
	first, last, step, _ = c.legacyRange()
	return first, last, step
}

// legacyRange also says whether the keys are not all in that range.
func (c *Command) legacyRange() (first, last, step int, movable bool) {
	if len(c.Keys) == 1 && c.Keys[0].plain() {
		k := &c.Keys[0]
		return k.BeginIndex, k.absoluteLast(), max(k.Step, 1), k.has("incomplete")
	}
	before := 0
	for i := range c.Keys {
		k := &c.Keys[i]
		if !k.plain() || max(k.Step, 1) != 1 || before != 0 && before != k.BeginIndex-1 {
			movable = true // not a range, or not next to the one before
			continue
		}
		movable = movable || k.has("incomplete")
		if first == 0 || k.BeginIndex < first {
			first = k.BeginIndex
		}
		// A place counted from the end is beyond any counted from the start.
		if l := k.absoluteLast(); uint(l) > uint(last) {
			last = l
		}
		before = last
	}
	if first == 0 {
		return 0, 0, 0, len(c.Keys) > 0
	}
	return first, last, 1, movable
}

// plain says that the keys are a range at a fixed place.
func (k *KeySpec) plain() bool { return k.BeginKeyword == "" && !k.KeyNum }

func (k *KeySpec) absoluteLast() int {
	if k.Last < 0 {
		return k.Last
	}
	return k.BeginIndex + k.Last
}

func (k *KeySpec) has(flag string) bool {
	for word := range strings.FieldsSeq(k.Flags) {
		if word == flag {
			return true
		}
	}
	return false
}

// appendInfo appends the command as COMMAND INFO shows it.
func (c *Command) appendInfo(w *resp.Writer) {
	first, last, step := c.LegacyKeys()
	w.Array(10)
	w.BulkString(c.FullName())
	w.Int(int64(c.Arity))
	appendStatuses(w, c.FlagNames())
	w.Int(int64(first))
	w.Int(int64(last))
	w.Int(int64(step))
	appendStatuses(w, c.CategoryNames())
	tips := strings.FieldsFunc(c.Tips, func(r rune) bool { return r == '\n' })
	w.Set(len(tips))
	for _, t := range tips {
		w.BulkString(t)
	}
	w.Set(len(c.Keys))
	for i := range c.Keys {
		c.Keys[i].append(w)
	}
	if len(c.Sub) == 0 {
		w.Set(0)
		return
	}
	w.Array(len(c.Sub))
	for i := range c.Sub {
		c.Sub[i].appendInfo(w)
	}
}

func appendStatuses(w *resp.Writer, words []string) {
	w.Set(len(words))
	for _, s := range words {
		w.Simple(s)
	}
}

func appendWords(w *resp.Writer, words string) { appendStatuses(w, strings.Fields(words)) }

func (k *KeySpec) append(w *resp.Writer) {
	w.Map(3)
	w.BulkString("flags")
	appendWords(w, k.Flags)
	w.BulkString("begin_search")
	if k.BeginKeyword != "" {
		appendSearch(w, "keyword", 2)
		w.BulkString("keyword")
		w.BulkString(strings.ToUpper(k.BeginKeyword))
		appendNumber(w, "startfrom", k.StartFrom)
	} else {
		appendSearch(w, "index", 1)
		appendNumber(w, "index", k.BeginIndex)
	}
	w.BulkString("find_keys")
	if k.KeyNum {
		appendSearch(w, "keynum", 3)
		appendNumber(w, "keynumidx", k.NumIndex)
		appendNumber(w, "firstkey", k.First)
		appendNumber(w, "keystep", max(k.KStep, 1))
		return
	}
	appendSearch(w, "range", 3)
	appendNumber(w, "lastkey", k.Last)
	appendNumber(w, "keystep", max(k.Step, 1))
	appendNumber(w, "limit", k.Limit)
}

// appendSearch begins a search of kind, of which n values follow.
func appendSearch(w *resp.Writer, kind string, n int) {
	w.Map(2)
	w.BulkString("type")
	w.BulkString(kind)
	w.BulkString("spec")
	w.Map(n)
}

func appendNumber(w *resp.Writer, name string, n int) {
	w.BulkString(name)
	w.Int(int64(n))
}

// appendDocs appends the command as COMMAND DOCS shows it.
func (c *Command) appendDocs(w *resp.Writer) {
	n, note := 3, c.docFlag()
	if note != "" {
		n++
	}
	if len(c.Sub) > 0 {
		n++
	}
	w.Map(n)
	for _, pair := range [][2]string{{"summary", c.Summary}, {"since", c.Since}, {"group", c.Group}} {
		w.BulkString(pair[0])
		w.BulkString(pair[1])
	}
	if note != "" {
		w.BulkString("doc_flags")
		appendWords(w, note)
	}
	if len(c.Sub) > 0 {
		w.BulkString("subcommands")
		w.Map(len(c.Sub))
		for i := range c.Sub {
			w.BulkString(c.Sub[i].FullName())
			c.Sub[i].appendDocs(w)
		}
	}
}

// docFlag is what the documentation of a command warns of.
func (c *Command) docFlag() string {
	switch c.FullName() {
	case "debug", "replconf", "restore-asking", "pfdebug", "pfselftest":
		return "syscmd"
	case "slaveof", "cluster|slaves", "cluster|slots", "getset", "setex", "psetex", "setnx", "substr", "hmset", "quit",
		"rpoplpush", "brpoplpush", "zrangebyscore", "zrangebylex", "zrevrange", "zrevrangebyscore", "zrevrangebylex",
		"georadius", "georadius_ro", "georadiusbymember", "georadiusbymember_ro":
		return "deprecated"
	}
	return ""
}

// takesKeys says whether any argument may be a key rather than a channel.
func (c *Command) takesKeys() bool {
	for i := range c.Keys {
		if !c.Keys[i].has("not_key") {
			return true
		}
	}
	return false
}

// keyUse is one key of a command, and what the command does to it.
type keyUse struct {
	position int
	flags    string
}

// keysOf lists the keys that args name.
func (c *Command) keysOf(args [][]byte) (keys []keyUse, ok bool) {
	if c.Find != nil {
		for _, p := range c.Find(nil, args) {
			keys = append(keys, keyUse{p, c.Keys[0].Flags})
		}
		return keys, true
	}
	for i := range c.Keys {
		k := &c.Keys[i]
		positions, ok := k.positions(nil, args)
		if !ok {
			return nil, false
		}
		for _, p := range positions {
			keys = append(keys, keyUse{p, c.useOf(k, args)})
		}
	}
	return keys, true
}

// useOf is what a command does to its keys, which for a few depends on its other words.
func (c *Command) useOf(k *KeySpec, args [][]byte) string {
	if !k.has("variable_flags") {
		return k.Flags
	}
	switch c.Name {
	case "set":
		for _, a := range args[3:] {
			if resp.IsWord(a, "get") {
				return "RW access update"
			}
		}
		return "OW update"
	case "bitfield":
		// The words: after GET two more, after SET and INCRBY three, after OVERFLOW one.
		for _, a := range args[2:] {
			if upper := bytes.ToLower(a); string(upper) == "set" || string(upper) == "incrby" {
				return "RW access update"
			}
		}
		return "RO access"
	}
	return k.Flags
}

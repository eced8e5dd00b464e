package server

import (
	"strings"

	"cairn/server/command"
)

// debugProtocol answers a reply of each kind, so that a client can try its parser.
func (s *Server) debugProtocol(x *command.Ctx) error {
	w := x.W
	switch strings.ToLower(string(x.Args[2])) {
	case "string":
		w.BulkString("Hello World")
	case "integer":
		w.Int(12345)
	case "double":
		w.Double(3.141)
	case "null":
		w.Null()
	case "array":
		w.Array(3)
		debugCount(x)
	case "set":
		w.Set(3)
		debugCount(x)
	case "map":
		w.Map(3)
		for i := range int64(3) {
			w.Int(i)
			w.Bool(i == 1)
		}
	case "attrib":
		if w.Attr(1) {
			w.BulkString("key-popularity")
			w.Array(2)
			w.BulkString("key:123")
			w.Int(90)
		}
		w.BulkString("Some real reply following the attribute")
	case "push":
		if w.Proto != 3 {
			return command.Reply("ERR RESP2 is not supported by this command")
		}
		w.BulkString("Some real reply following the push reply") // in 7.2 the message waits for the reply's end
		w.Push(2)
		w.BulkString("server-cpu-usage")
		w.Int(42)
	case "verbatim":
		w.Verbatim("txt", []byte("This is a verbatim\nstring"))
	case "true":
		w.Bool(true)
	case "false":
		w.Bool(false)
	case "bignum":
		w.BigNumber("1234567999999999999999999999999999999")
	default:
		return command.Reply("ERR Wrong protocol type name. Please use one of the following: " +
			"string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false")
	}
	return nil
}

func debugCount(x *command.Ctx) {
	for i := range int64(3) {
		x.W.Int(i)
	}
}

// Package rdb turns Redis values into bytes and back: the RDB stream that a full
// sync or a dump.rdb file carries, and the payload of DUMP, RESTORE and MIGRATE.
//
// Shape of a stream. Everything after the magic is a run of records, each opened
// by one byte: an opcode, or the type of a value.
//
//	"REDIS" "0010"                                  magic and version, ASCII
//	FA string string                                aux field
//	F5 string                                       source of a function library
//	FE length                                       the keys below are in this database
//	FB length length                                hint: keys, keys with a deadline
//	[FC int64 | FD int32] [F8 length] [F9 byte]     deadline, idle time, frequency of the next key
//	type string value                               one key
//	FF crc64                                        end; 8 zero bytes mean "not computed"
//
// Shape of a payload. No key and no deadline are inside.
//
//	type value version(2, little endian) crc64(8, little endian)
//
// Shape of a value. A string is a length and its bytes, or an integer, or an LZF
// block (strings.go). A collection is a count and its elements, or one string
// that holds all elements packed: a listpack, and from older servers a ziplist, a
// zipmap or an intset (a file each). Sorted sets carry scores as 8 bytes, or as
// text from older servers. Which type byte means which is in types.go.
//
// Units. Lengths and counts are bytes and elements. Deadlines are absolute Unix
// milliseconds; 0 stands for none. Idle times are whole seconds. Lengths are big
// endian, every other integer is little endian.
//
// Reading. A value goes element by element into a Sink, so that no collection is
// ever held whole. It is checked once, while it is taken apart: nothing later
// trusts an offset that came from outside. What a real server refuses with its
// full sanitizing is refused: broken bounds, wrong counts and back lengths,
// duplicate members, scores that are no number, empty collections.
//
// Limits. A declared length or count allocates nothing by itself; memory follows
// the bytes that really arrive. Held at one time are the pair of elements being
// read, the packed blob they sit in, 8 bytes per element for the duplicate check,
// and buffers below 256 KiB. An LZF block can stand for 88 times its own size: a
// top-level string is therefore handed on in pieces, and an element or blob is
// bounded by MaxElement.
//
// Errors. A decoder returns *Error, which says what it was reading, at which
// byte, and why it stopped; errors.Is(err, ErrBadFormat) holds for it.
// *UnsupportedTypeError names a type that is sound but not understood. Errors of
// a Sink or of the reader below are passed through.
//
// Source. Redis 7.0.15 and 7.2.6 for types up to 21; RDB version 12 as observed on
// the wire for the hash types with field deadlines, 22 to 25. Tests compare with a
// running redis-server in both directions.
//
// Not here: files, sockets, clocks, the meaning of aux fields, streams and module
// values (refused by name), and where a value is kept.
package rdb

// Package resp is the Redis protocol: a resumable request framer with limits,
// writers and parsers of RESP2 and RESP3, and the number formats that Redis
// speaks.
//
// Shape. A request is an array of bulk strings, or one inline line:
//
//	*2\r\n$3\r\nGET\r\n$1\r\nk\r\n      multibulk: count, then per argument its
//	                                    length in bytes, the bytes, CR LF
//	GET "k\x00"\r\n                     inline: words with quoting, CR optional
//
// A reply is one value; the first byte names its kind:
//
//	+text -error :integer $bulk *array            RESP2
//	_null ,double #boolean (big =verbatim !error  RESP3
//	%map ~set >push |attribute                    RESP3
//
// Units. Lengths and offsets are bytes, counts are elements (pairs for maps and
// attributes).
//
// Errors. Framer.Next gives *ProtocolError, whose text is what Redis sends after
// "-ERR " before it closes the connection, or ErrQueryLimit, on which Redis
// closes without a word. ParseReply and NextCommand give *SyntaxError. Nothing
// here panics on bytes from outside, and nothing allocates for a length that was
// declared but not received.
//
// Source. Redis 7.2 networking.c (request framing, reply shapes), sds.c (inline
// quoting), util.c and fpconv (numbers). Texts and digits are compared with a
// running redis-server in the tests.
//
// Deliberate differences. A line is too long by its own length, not by how it was
// cut into packets. A NUL byte in a line is an ordinary byte, where Redis would
// stop seeing the rest of it and wait. The bytes of one command as a whole are
// held to MaxQuery, because arguments alias the read buffer.
//
// Not here: sockets, clocks, the command table.
package resp

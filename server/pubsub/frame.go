package pubsub

import "cairn/internal/resp"

// Frame is one message on its way to subscribers. It is encoded once for each protocol, however many they are:
//
//	> 3  "message"   channel payload      of a channel
//	> 3  "smessage"  channel payload      of a shard channel
//	> 4  "pmessage"  pattern channel payload
//
// In RESP2 these are arrays.
type Frame struct {
	// From is who publishes, nil where that is not known or cannot be a subscriber.
	From Subscriber

	kind                      Kind
	receivers                 int
	pattern, channel, payload []byte
	encoded                   [2][]byte
}

// Receivers is how many subscribers get this frame.
func (f *Frame) Receivers() int { return f.receivers }

// Bytes is the message for a connection that speaks RESP proto, 2 or 3. It is shared and does not change.
func (f *Frame) Bytes(proto int) []byte {
	i := 0
	if proto == 3 {
		i = 1
	}
	if f.encoded[i] == nil {
		f.encoded[i] = f.encode(proto)
	}
	return f.encoded[i]
}

func (f *Frame) encode(proto int) []byte {
	const headers = 64
	w := resp.Writer{Proto: proto, Buf: make([]byte, 0, headers+len(f.pattern)+len(f.channel)+len(f.payload))}
	switch f.kind {
	case Pattern:
		w.Push(4)
		w.BulkString("pmessage")
		w.Bulk(f.pattern)
	case Shard:
		w.Push(3)
		w.BulkString("smessage")
	default:
		w.Push(3)
		w.BulkString("message")
	}
	w.Bulk(f.channel)
	w.Bulk(f.payload)
	return w.Buf
}

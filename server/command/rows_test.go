package command

import (
	"fmt"
	"strings"
	"testing"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// dumpRows lists all keys of a node with their records, value rows, elements and pieces, generations and numbers left
// out: two nodes with the same data list the same.
func dumpRows(t *testing.T, n *node) string {
	t.Helper()
	var out strings.Builder
	txn := n.store.NewTxn()
	txn.BeginAll(false, engine.Forever)
	defer txn.End()
	for slot := range uint16(16384) {
		if n.store.SlotCounters(slot).Keys == 0 {
			continue
		}
		records, err := txn.Records(slot, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for ; records.Valid(); records.Next() {
			dumpKey(t, txn, &out, string(records.Key()))
		}
		if err := records.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func dumpKey(t *testing.T, txn *engine.Txn, out *strings.Builder, name string) {
	t.Helper()
	k, err := txn.Key([]byte(name))
	if err != nil {
		t.Fatal(err)
	}
	r := &k.Rec
	fmt.Fprintf(out, "%q type=%d form=%d enc=%d deadline=%d count=%d bytes=%d body=%q\n",
		name, r.Type, r.Form, r.Enc, r.Deadline, r.Count, r.Bytes, r.Body)
	switch r.Form {
	case 1: // layout.ValueRow
		v, err := txn.Value(k)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "  value=%q\n", v)
	case 2: // layout.Rows
		it, err := txn.Elements(k, nil)
		if err != nil {
			t.Fatal(err)
		}
		for ; it.Valid(); it.Next() {
			row := it.Value()
			if v, err := layout.DecodeHashValue(row); r.Type == layout.HashType && err == nil && v.InPieces {
				fmt.Fprintf(out, "  %q=%d bytes in pieces\n", it.Key(), v.Length)
				dumpPieces(t, txn, out, k, &v)
				continue
			}
			fmt.Fprintf(out, "  %q=%q\n", it.Key(), row)
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// dumpPieces lists the rows of a long value.
func dumpPieces(t *testing.T, txn *engine.Txn, out *strings.Builder, k *engine.Key, v *layout.HashValue) {
	t.Helper()
	it, err := txn.Pieces(k, nil)
	if err != nil {
		t.Fatal(err)
	}
	for it.Seek(layout.AppendPiece(nil, v.Number, 0)); it.Valid(); it.Next() {
		number, piece, err := layout.PieceParts(it.Key())
		if err != nil {
			t.Fatal(err)
		}
		if number != v.Number {
			break
		}
		fmt.Fprintf(out, "    %d=%d bytes %x\n", piece, len(it.Value()), layout.Hash(it.Value()))
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
}

// replayed gives a second node that has executed all that the first one logged, as recovery and replicas do: an
// entry in one transaction, without a time and without replies.
func replayed(t *testing.T, n *node) *node {
	t.Helper()
	to := newNode(t)
	// A time far from the first node's must make no difference.
	to.now = n.now + 1<<40
	var entry [][][]byte
	for log := n.log.Bytes(); len(log) > 0; {
		args, size, err := resp.NextCommand(log, nil)
		if err != nil || size == 0 {
			t.Fatalf("log does not read back at %.60q: %v", log, err)
		}
		log = log[size:]
		switch {
		case string(args[0]) == "MULTI":
			entry = [][][]byte{} // gathers until EXEC
		case string(args[0]) == "EXEC":
			to.replay(entry)
			entry = nil
		case entry != nil:
			entry = append(entry, args)
		default:
			to.replay([][][]byte{args})
		}
	}
	return to
}

// replay executes one entry of a log.
func (n *node) replay(entry [][][]byte) {
	n.t.Helper()
	w := &resp.Writer{Proto: 2}
	c := &Ctx{Txn: n.txn, Host: n, NowMs: n.now, W: w, Replaying: true}
	defer n.closeStaged(c)
	n.staged(c, entry, func() { n.txn.BeginAll(true, engine.Forever) })
	for _, args := range entry {
		cmd, ok := n.table.Lookup(args)
		if cmd == nil || !ok {
			n.t.Fatalf("%.60q in the log is no command", args)
		}
		c.Reset(cmd, args)
		if err := c.Execute(); err != nil {
			n.t.Fatalf("replay of %.200q: %v", args, err)
		}
		if c.Streams() > 0 {
			n.t.Fatalf("replay of %.200q opened a stream", args)
		}
	}
	if _, err := n.txn.Commit(); err != nil {
		n.t.Fatalf("replay of %.200q: %v", entry, err)
	}
}

// checkReplay fails the test unless executing n's log gives n's rows.
func checkReplay(t *testing.T, n *node) {
	t.Helper()
	want, got := dumpRows(t, n), dumpRows(t, replayed(t, n))
	if want == got {
		return
	}
	for w, g := strings.Split(want, "\n"), strings.Split(got, "\n"); ; w, g = w[1:], g[1:] {
		if len(w) == 0 || len(g) == 0 || w[0] != g[0] {
			t.Fatalf("rows differ after the log was executed:\nwant %.300q\ngot  %.300q", w, g)
		}
	}
}

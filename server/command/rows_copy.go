package command

import (
	"errors"
	"fmt"
	"io"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/replication/rows"
)

// All data as a stream of rows, for another node of this program: see package rows. Nothing is taken apart and put
// together again, so what is sent has the forms that this node's settings gave it.

// WriteRows writes what the snapshot shows, with its end.
func WriteRows(sn *engine.Snapshot, to io.Writer, codec rows.Codec) error {
	w, err := rows.NewWriter(to, codec, rows.Head{Layout: layout.Version, Bytes: sn.Bytes()})
	if err != nil {
		return err
	}
	if err := sn.Rows(w.Row); err != nil {
		return err
	}
	return w.Close()
}

// LoadRows reads one stream, and nothing behind it, into a data set that nobody sees yet. The caller commits it, or aborts
// it after an error: *rows.FormatError, *UnloadableError, and those of engine.Replacement.
func LoadRows(from io.Reader, into *engine.Replacement) error {
	r, err := rows.NewReader(from)
	if err != nil {
		return err
	}
	defer r.Close()
	h := r.Head()
	if h.Layout != layout.Version {
		return &UnloadableError{fmt.Sprintf("its rows are of format %d, this server's of %d", h.Layout, layout.Version)}
	}
	if err := into.Expect(h.Bytes); err != nil {
		return err
	}
	for {
		key, val, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := into.PutRow(key, val); err != nil {
			return err
		}
	}
}

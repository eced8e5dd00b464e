package engine

import (
	"errors"
	"sync/atomic"

	"cairn/engine/layout"
)

// rowVersions tell whether the rows of a generation may have changed between two moments, for who copies a large
// value without holding its slot. Generations share counters, so a change may be seen where there was none, never the
// other way round. Counters move under the lock of the slot that holds the generation.
type rowVersions [1 << 12]atomic.Uint32

func (v *rowVersions) of(gen uint64) *atomic.Uint32 { return &v[gen%uint64(len(v))] }

// View is a large value as it was when View was called, to be copied row by row after the transaction has ended.
type View struct {
	*Iter
	Rec     layout.Record // Body is a copy
	Pieces  *Iter         // of long values of fields; nil when there are none
	version uint32
}

// View opens the rows of k, whose record has Form Rows. The walk has no limit of time: it ends at its own pace, not
// at a client's.
func (t *Txn) View(k *Key) (*View, error) {
	v := &View{Rec: k.Rec, version: t.s.versions.of(k.Rec.Gen).Load()}
	v.Rec.Body = append([]byte(nil), k.Rec.Body...)
	it, err := t.Elements(k, nil)
	if err != nil {
		return nil, err
	}
	it.KeepOpen()
	v.Iter = it
	if k.Rec.MayHavePieces() {
		if v.Pieces, err = t.Pieces(k, it); err != nil {
			return nil, errors.Join(err, it.Close())
		}
	}
	return v, nil
}

// Close lets go of all rows and gives the first error met.
func (v *View) Close() error {
	err := v.Iter.Close()
	if v.Pieces != nil {
		err = errors.Join(err, v.Pieces.Close())
	}
	return err
}

// Same says whether k still holds exactly what the view shows. The transaction holds k's slot.
func (t *Txn) Same(k *Key, v *View) bool {
	return !k.dirty && k.Rec.Form == layout.Rows && k.Rec.Type == v.Rec.Type && k.Rec.Gen == v.Rec.Gen &&
		k.Rec.Count == v.Rec.Count && k.Rec.Bytes == v.Rec.Bytes && t.s.versions.of(v.Rec.Gen).Load() == v.version
}

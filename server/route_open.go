package server

import (
	"bytes"
	"fmt"

	"cairn/cluster"
	"cairn/engine"
	"cairn/server/command"
)

// A slot on its way from one node to another. Its keys are on one side each: the source serves those that it still has,
// and sends clients for others to the target with ASK; the target serves who comes with ASKING. Whether a key is here is
// asked under the lock of its slot, so that none leaves between the question and the command.

const textTryAgain = "TRYAGAIN Multiple keys request during rehashing of slot"

// moving says whether a slot is on its way, in either direction, or doubtful since somebody ended its way by hand. To a
// replica, which knows what is on its way to and from its primary, that matters only for what it serves itself.
func (s *Server) moving(c *client, r *engine.Routing, cmd *command.Command, sl uint16) bool {
	if r.Replica && !s.readsHere(c, cmd) {
		return false
	}
	return r.Slots[sl]&(engine.SlotOwned|engine.SlotMigrating) == engine.SlotOwned|engine.SlotMigrating ||
		r.Slots[sl]&(engine.SlotOwned|engine.SlotImporting) == engine.SlotImporting ||
		s.doubtful(r, sl)
}

// keyCount counts the keys of a command, or of a transaction, by whether they are here.
type keyCount struct {
	here, missing int
	arrived       int // of those here: not written since
	first         []byte
	several       bool // keys differ
}

// add counts what a command names. The slot is locked in c.txn. A key whose time has passed is missing.
func (k *keyCount) add(c *client, cmd *command.Command, args [][]byte) error {
	pos, _ := cmd.KeyPositions(nil, args)
	for _, at := range pos {
		name := args[at]
		if k.first == nil {
			k.first = name
		}
		k.several = k.several || !bytes.Equal(name, k.first)
		key, err := c.txn.KeyNoTouch(name)
		if err != nil {
			return err
		}
		if key.Exists() {
			k.here++
			if key.Rec.Arrived {
				k.arrived++
			}
		} else {
			k.missing++
		}
	}
	return nil
}

// redirectMoving is redirect for a slot that is on its way. asking: the command is one of a move itself.
func (s *Server) redirectMoving(c *client, r *engine.Routing, asking bool, sl uint16, keys *keyCount) string {
	if r.Slots[sl]&engine.SlotOwned == 0 { // it comes here
		switch {
		case !asking && !c.asking:
			return s.elsewhere(r, sl)
		case keys.several && keys.missing > 0:
			return textTryAgain
		}
		return ""
	}
	if r.Slots[sl]&engine.SlotMigrating == 0 { // doubtful
		if !asking && !c.asking && (keys.missing > 0 || keys.arrived > 0 && s.arrivedDoubtful(r, sl)) {
			return textDoubts
		}
		return ""
	}
	switch {
	case keys.missing == 0:
		return ""
	case keys.here > 0:
		return textTryAgain
	}
	return s.askAt(r, sl)
}

// askAt sends a client to the node that a slot goes to, for one command.
func (s *Server) askAt(r *engine.Routing, sl uint16) string {
	v := viewOf(r)
	at, ok := v.Migrating[sl]
	if !ok || at == cluster.NoNode {
		return ""
	}
	address, _ := s.preferred(&v.Nodes[at])
	return fmt.Sprintf("ASK %d %s:%d", sl, address, v.Nodes[at].Port)
}

package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"cairn/cluster/nodesconf"
	"cairn/engine"
)

// maxNodesFile is far more than a thousand nodes need, bytes.
const maxNodesFile = 64 << 20

// openCluster reads what the node knew of the cluster when it last ran. A node that never ran in a cluster gets
// an id; a file that is there and cannot be read ends the start, since a new id would make the node a stranger.
func (s *Server) openCluster(store *engine.Store) (*engine.Routing, error) {
	if !s.cfg.V.ClusterEnabled.Load() {
		return &engine.Routing{}, nil
	}
	v := &s.admin.cluster
	v.mu.Lock()
	defer v.mu.Unlock()
	v.path = s.cfg.Path(s.cfg.V.ClusterConfigFile.Load())
	file, err := loadNodes(v.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if file, err = s.firstNodes(store); err == nil {
			err = saveNodes(v.path, file)
		}
		if err != nil {
			return nil, fmt.Errorf("save the cluster configuration: %w", err)
		}
	case err != nil:
		return nil, fmt.Errorf("cluster configuration file %s: %w: the node will not take another id; put the file back "+
			"from a backup, or remove it to begin as a new node", v.path, err)
	default:
		s.log.Notice("Node configuration loaded, I'm " + file.Myself().ID)
	}
	v.file = *file
	return s.clusterRouting(file), nil
}

// firstNodes is what a node knows that has never been in a cluster: itself.
func (s *Server) firstNodes(store *engine.Store) (*nodesconf.File, error) {
	id, shard := newID(), newID()
	if keys := store.Keys(); keys > 0 {
		s.log.Warning("data without a cluster configuration: no slot is this node's until it is assigned", "keys", keys)
	}
	s.log.Notice("No cluster configuration found, I'm " + string(id[:]))
	return &nodesconf.File{Nodes: []nodesconf.Node{{
		ID: string(id[:]), ShardID: string(shard[:]), Port: int(s.cfg.V.Port.Load()), BusPort: s.busPort(),
		Flags: nodesconf.Myself | nodesconf.Primary, Connected: true,
	}}}, nil
}

func loadNodes(path string) (*nodesconf.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxNodesFile {
		return nil, fmt.Errorf("%d bytes, more than %d", st.Size(), maxNodesFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return nodesconf.Parse(text)
}

// saveNodes replaces the file, so that after a crash at any moment the old one or the new one is there, whole.
func saveNodes(path string, f *nodesconf.File) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name()) // what failed before is what counts
		}
	}()
	_, err = temp.Write(f.Append(nil))
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if err == nil {
		err = temp.Sync()
	}
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

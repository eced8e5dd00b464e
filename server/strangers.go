package server

import (
	"os"
	"path/filepath"
	"slices"

	"cairn/internal/datadir"
)

// A stranger is a file or folder in which Redis keeps a data set.
type stranger struct {
	directive string // whose value is its name
	format    string
}

// strangers lists them. Up to Redis 6 the file that appendfilename names is in dir itself.
func strangers() []stranger {
	return []stranger{{"dbfilename", "RDB"}, {"appenddirname", "AOF"}, {"appendfilename", "AOF"}}
}

// warnOfStrangers says of a node without keys that the data set somebody may have put in its folder is not read: in
// Redis's folder, silence would look like loss.
func (s *Server) warnOfStrangers() {
	dir := s.cfg.V.Dir.Load()
	for _, f := range strangers() {
		name, _ := s.cfg.Value(f.directive)
		if name == "" {
			continue
		}
		if !foreign(filepath.Join(dir, name)) {
			continue
		}
		s.log.Warning(name + " in " + dir + " is not read: cairn cannot load " + f.format + " files yet; this node starts empty")
	}
}

// foreign says that path is there and holds something. A folder that only holds our own data folder, or nothing, does not.
func foreign(path string) bool {
	entries, err := os.ReadDir(path)
	if err != nil { // a file, or nothing
		_, err = os.Stat(path)
		return err == nil
	}
	own := filepath.Base(datadir.Of(path, ""))
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != own })
}

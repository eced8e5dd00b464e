package server

import (
	"os"
	"path/filepath"
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
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			continue
		}
		s.log.Warning(name + " in " + dir + " is not read: cairn cannot load " + f.format + " files yet; this node starts empty")
	}
}

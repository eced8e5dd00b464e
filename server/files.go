package server

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"cairn/server/command"
)

// Open files. Clients and the node's own files share one limit of the process. A node that is out of descriptors can
// begin no log segment, and has to end: so clients get what the node does not need for itself, and no more.
//
//	limit = ownFiles + tables (a quarter of the rest, from tablesLeast to tablesMost) + clients
const (
	ownFiles    = 64 // log, store, sockets to listen on, compactions at work
	tablesLeast = 74 // below this Pebble takes no notice
	tablesMost  = 4096
	clientsLow  = 16 // a node for fewer is not worth starting
)

// fileShares is how the limit of open files is split.
type fileShares struct {
	tables  int   // kept open by the store
	clients int64 // connections, whatever maxclients says
}

// shareFiles splits limit files.
func shareFiles(limit uint64) (fileShares, error) {
	const least = ownFiles + tablesLeast + clientsLow
	if limit < least {
		return fileShares{}, fmt.Errorf("open files: the limit of %d (ulimit -n) is too low, a node needs at least %d", limit, least)
	}
	rest := int64(min(limit, 1<<40)) - ownFiles
	tables := min(max(tablesLeast, rest/4), tablesMost)
	return fileShares{tables: int(tables), clients: rest - tables}, nil
}

// limitFiles splits the files that the process may open, and lowers maxclients to what there is. The Go runtime has
// raised the soft limit to the hard one already.
func (s *Server) limitFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	shares, err := shareFiles(l.Cur)
	if err != nil {
		return err
	}
	s.files = shares
	if asked := s.cfg.V.MaxClients.Load(); asked > shares.clients {
		s.log.Warning("maxclients reduced: not enough files may be open", "maxclients", shares.clients, "asked", asked, "open-files", l.Cur)
		if err := s.cfg.Store("maxclients", strconv.FormatInt(shares.clients, 10)); err != nil {
			return err
		}
	}
	s.cfg.OnChange("maxclients", func(string, string) error {
		if s.cfg.V.MaxClients.Load() > shares.clients {
			return command.Reply(fmt.Sprintf("The operating system is not able to handle the specified number of clients, try with %d", shares.clients))
		}
		return nil
	})
	return nil
}

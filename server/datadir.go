package server

import (
	"errors"
	"fmt"
	"os"

	"cairn/internal/datadir"
)

// dataDir is where the node's own files are.
func (s *Server) dataDir() string {
	return datadir.Of(s.cfg.V.Dir.Load(), s.cfg.V.AppendDirName.Load())
}

// takeDataDir makes the data folder this process's own, before anything in it is read. Nodes of tests, whose files are in
// memory, share no folder with other processes.
func (s *Server) takeDataDir() error {
	if s.fs != nil {
		return nil
	}
	if err := s.movedData(); err != nil {
		return err
	}
	lock, err := datadir.Take(s.dataDir())
	if err != nil {
		return err
	}
	s.dataLock = lock
	return nil
}

// movedData refuses to begin an empty data set where appenddirname was changed under a node that has one. Data that
// another process has open is that one's.
func (s *Server) movedData() error {
	here, before := s.dataDir(), datadir.Of(s.cfg.V.Dir.Load(), "")
	if here == before {
		return nil
	}
	if _, err := os.Stat(here); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(before); err != nil {
		return nil
	}
	if _, held, err := datadir.Holder(before); held || err != nil {
		return err
	}
	return fmt.Errorf("appenddirname puts the data into %s, where there is none, but there is data in %s: "+
		"move it there, leave appenddirname at %s, or choose another dir", here, before, datadir.DefaultAppendDir)
}

// releaseDataDir gives the folder to the next process.
func (s *Server) releaseDataDir() error {
	if s.dataLock == nil {
		return nil
	}
	err := s.dataLock.Release()
	s.dataLock = nil
	return err
}

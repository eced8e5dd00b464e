package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	"cairn/server"
)

const speaks = "7.2.4" // the version of Redis that clients and scripts are told

func versionText() string {
	v := "devel"
	if revision, _ := source(); len(revision) >= 12 {
		v = revision[:12]
	}
	return "cairn " + server.Version + " (" + v + "), speaks Redis " + speaks
}

// redisVersionText is the line of redis-server --version: scripts cut it at blanks and at "v=", and some go on to " sha=".
// What is ours comes behind.
func redisVersionText() string {
	sha, build, dirty := "00000000", "0", 0
	revision, modified := source()
	if len(revision) >= 16 {
		sha, build = revision[:8], revision[:16]
	}
	if modified {
		dirty = 1
	}
	return fmt.Sprintf("Redis server v=%s sha=%s:%d malloc=%s bits=%d build=%s %s",
		speaks, sha, dirty, runtime.Version(), strconv.IntSize, build, versionText())
}

// source is what the program was built from, "" when that is not known.
func source() (revision string, modified bool) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	return revision, modified
}

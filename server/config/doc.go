// Package config holds every setting of a node: which there are, where their
// values come from, what they are now, and how they change while it runs.
//
// Shape. One table (table_*.go) has a row per directive: its names, kind,
// default, range and what it is good for. Everything else reads that table:
//
//	Load       file, standard input, environment, command line -> *Config
//	Config.V   the values, typed, read without a lock by hot paths
//	Config.Get, Set, Rewrite   the CONFIG commands
//
// A value lives twice. As text it is what CONFIG GET shows, in one canonical
// form. In V it is a number, a choice or a list behind an atomic. Both change
// together under one lock, so that V is never ahead of a refused CONFIG SET
// for longer than the hooks of that command run.
//
// Sources. Later ones win: defaults, then the file (redis.conf syntax, or TOML,
// YAML, JSON), standard input, the environment (CAIRN_PORT for port), and the
// command line (--port 7000). save, client-output-buffer-limit and the like add
// up over the lines that name them.
//
// Units. Memory is bytes. Times are in the unit that the row names (seconds,
// milliseconds or microseconds), as in Redis; fields of Values that are not
// seconds say so. A percentage is kept as a negative number.
//
// Errors. Load reports all mistakes at once, each an *Error with the place, the
// directive, the value and the rule. Set answers with the text of Redis's reply.
// Directives that promise protection which this server does not give are
// refused; directives without meaning on disk are accepted with a Note.
//
// Limits. A file and what it includes hold at most maxFileBytes, a value at most
// maxValueLen bytes. No input panics.
//
// Source. Redis 7.2.6, config.c, redis.conf and server.c (main), for names,
// defaults, ranges and reply texts.
//
// Not here: doing anything about a value. Listeners, logs, signals, users and
// the cluster belong to the server, which registers OnChange hooks.
package config

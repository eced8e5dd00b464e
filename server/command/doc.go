// Package command is the table of all commands and the handlers of those that work on data.
//
// Shape. A Command is one row: name, arity, flags, key specs, categories, handler. Everything that asks about a
// command reads its row: redirection, arity errors, ACL, COMMAND, the read-only and loading checks. A handler
// gets a Ctx: arguments, the transaction on the slots of its keys, the reply. What needs sockets, channels or
// the cluster it asks of Host, which package server implements.
//
// Three ways in, one executor. A client's command runs with a reply; a replica runs its primary's stream and
// recovery runs the log, both with the reply thrown away and no deadlines (engine.Forever). What a handler
// writes must therefore be a function of its arguments and the rows. Where it is not (the time, a random pick)
// the handler says what is logged instead: Ctx.Propagate.
//
// Errors. A handler returns a Reply error, whose text is what the client reads, before it has changed
// anything. Any other error is a failed read: the client gets IOERR and nothing is committed.
//
// Not here: locks, routing, MULTI, the log (server and engine).
package command

package command

// Transactions. What is between MULTI and EXEC runs under all its locks together; WATCH makes EXEC depend on
// keys staying as they are. Semantics follow Redis 7.2, multi.c.

// TransactionHost is what these commands ask of the node around them.
type TransactionHost interface {
	Discard(*Ctx) error
	Exec(*Ctx) error
	Multi(*Ctx) error
	Unwatch(*Ctx) error
	Watch(*Ctx) error
}

func transactionCommands() []Command {
	const fast = NoScript | Loading | Stale | Fast | AllowBusy
	return []Command{
		{
			Name: "multi", Arity: 1, Flags: fast, Group: "transactions", Since: "1.2.0",
			Summary: "Begins a transaction.", Run: host(TransactionHost.Multi),
		},
		{
			Name: "exec", Arity: 1, Flags: NoScript | Loading | Stale | SkipSlowlog, Group: "transactions", Since: "1.2.0",
			Summary: "Runs the commands of the transaction.", Run: host(TransactionHost.Exec),
		},
		{
			Name: "discard", Arity: 1, Flags: fast, Group: "transactions", Since: "2.0.0",
			Summary: "Gives the transaction up.", Run: host(TransactionHost.Discard),
		},
		// The slots of watched keys are locked: whether a key exists and the watch on it are of one moment.
		{
			Name: "watch", Arity: -2, Flags: fast, Keys: keysRO, Group: "transactions", Since: "2.2.0",
			Summary: "Lets the next transaction run only if keys stay as they are.", Run: host(TransactionHost.Watch),
		},
		{
			Name: "unwatch", Arity: 1, Flags: fast, Group: "transactions", Since: "2.2.0",
			Summary: "Forgets all watched keys.", Run: host(TransactionHost.Unwatch),
		},
	}
}

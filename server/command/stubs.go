package command

// Placeholders until each family's file stands; remove the line here when you add the file.

func connectionCommands() []Command    { return nil }
func clientCommands() []Command        { return nil }
func transactionCommands() []Command   { return nil }
func pubsubCommands() []Command        { return nil }
func adminCommands() []Command         { return nil }
func configCommands() []Command        { return nil }
func debugCommands() []Command         { return nil }
func introspectionCommands() []Command { return nil }
func clusterCommands() []Command       { return nil }

// Parts of Host not declared yet.
type (
	ConnectionHost  interface{}
	TransactionHost interface{}
	PubSubHost      interface{}
	AdminHost       interface{}
	ClusterHost     interface{}
)

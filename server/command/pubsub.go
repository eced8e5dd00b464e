package command

// Messages. Semantics follow Redis 7.2, pubsub.c.

// PubSubHost is what these commands ask of the node around them.
type PubSubHost interface {
	PSubscribe(*Ctx) error
	PubSubChannels(*Ctx) error
	PubSubNumPat(*Ctx) error
	PubSubNumSub(*Ctx) error
	PubSubShardChannels(*Ctx) error
	PubSubShardNumSub(*Ctx) error
	PUnsubscribe(*Ctx) error
	Publish(*Ctx) error
	SPublish(*Ctx) error
	SSubscribe(*Ctx) error
	Subscribe(*Ctx) error
	SUnsubscribe(*Ctx) error
	Unsubscribe(*Ctx) error
}

// Shard channels live in slots as keys do, and are no keys.
var (
	shardChannel  = []KeySpec{{Flags: "not_key", BeginIndex: 1}}
	shardChannels = []KeySpec{{Flags: "not_key", BeginIndex: 1, Last: -1, Step: 1}}
)

func pubsubCommands() []Command {
	const listen = PubSub | NoScript | Loading | Stale
	const send = PubSub | Loading | Stale | Fast | MayReplicate
	return []Command{
		{
			Name: "subscribe", Arity: -2, Flags: listen, Group: "pubsub", Since: "2.0.0",
			Summary: "Listens to channels.", Run: host(PubSubHost.Subscribe),
		},
		{
			Name: "unsubscribe", Arity: -1, Flags: listen, Group: "pubsub", Since: "2.0.0",
			Summary: "Listens no more to channels, to all without names.", Run: host(PubSubHost.Unsubscribe),
		},
		{
			Name: "psubscribe", Arity: -2, Flags: listen, Group: "pubsub", Since: "2.0.0",
			Summary: "Listens to all channels that match patterns.", Run: host(PubSubHost.PSubscribe),
		},
		{
			Name: "punsubscribe", Arity: -1, Flags: listen, Group: "pubsub", Since: "2.0.0",
			Summary: "Listens no more to patterns, to all without names.", Run: host(PubSubHost.PUnsubscribe),
		},
		{
			Name: "ssubscribe", Arity: -2, Flags: listen, Keys: shardChannels, Group: "pubsub", Since: "7.0.0",
			Summary: "Listens to shard channels.", Run: host(PubSubHost.SSubscribe),
		},
		{
			Name: "sunsubscribe", Arity: -1, Flags: listen, Keys: shardChannels, Group: "pubsub", Since: "7.0.0",
			Summary: "Listens no more to shard channels, to all without names.", Run: host(PubSubHost.SUnsubscribe),
		},
		{
			Name: "publish", Arity: 3, Flags: send, Group: "pubsub", Since: "2.0.0",
			Summary: "Sends a message to a channel.", Run: host(PubSubHost.Publish),
		},
		{
			Name: "spublish", Arity: 3, Flags: send, Keys: shardChannel, Group: "pubsub", Since: "7.0.0",
			Summary: "Sends a message to a shard channel.", Run: host(PubSubHost.SPublish),
		},
		pubsubCommand(),
	}
}

func pubsubCommand() Command {
	const ask = PubSub | Loading | Stale
	return Command{
		Name: "pubsub", Arity: -2, Group: "pubsub", Since: "2.8.0", Summary: "Commands about subscriptions.",
		Sub: []Command{
			{
				Name: "channels", Arity: -2, Flags: ask, Since: "2.8.0",
				Summary: "Lists the channels that somebody listens to.", Run: host(PubSubHost.PubSubChannels),
			},
			{
				Name: "help", Arity: 2, Flags: Loading | Stale, Since: "6.2.0",
				Summary: "Explains the subcommands.", Run: pubsubHelp,
			},
			{
				Name: "numpat", Arity: 2, Flags: ask, Since: "2.8.0",
				Summary: "Counts the patterns that somebody listens to.", Run: host(PubSubHost.PubSubNumPat),
			},
			{
				Name: "numsub", Arity: -2, Flags: ask, Since: "2.8.0",
				Summary: "Counts who listens to channels.", Run: host(PubSubHost.PubSubNumSub),
			},
			{
				Name: "shardchannels", Arity: -2, Flags: ask, Since: "7.0.0",
				Summary: "Lists the shard channels that somebody listens to.", Run: host(PubSubHost.PubSubShardChannels),
			},
			{
				Name: "shardnumsub", Arity: -2, Flags: ask, Since: "7.0.0",
				Summary: "Counts who listens to shard channels.", Run: host(PubSubHost.PubSubShardNumSub),
			},
		},
	}
}

func pubsubHelp(c *Ctx) error {
	return c.help("PUBSUB",
		"CHANNELS [<pattern>]", "The channels that somebody listens to, those that match if there is a pattern.",
		"NUMPAT", "How many patterns somebody listens to.",
		"NUMSUB [<channel> ...]", "How many listen to each of the channels; patterns do not count.",
		"SHARDCHANNELS [<pattern>]", "As CHANNELS, for shard channels.",
		"SHARDNUMSUB [<shardchannel> ...]", "As NUMSUB, for shard channels.")
}

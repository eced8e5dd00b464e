package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Limits of lists, and Redis's words for values of the special directives.
const (
	maxBindAddrs   = 16
	maxPercentiles = 1024
	maxSavePoints  = 1024
	maxHostname    = 256
)

// A rule is the text with which Redis refuses a value. Its spelling is part of
// the protocol.
type rule string

func (r rule) Error() string { return string(r) }

const (
	errArgCount   = rule("wrong number of arguments")
	errSave       = rule("Invalid save parameters")
	errBufferArgs = rule("Wrong number of arguments in buffer limit configuration.")
	errBufferKind = rule("Invalid client class specified in buffer limit configuration.")
	errBufferSize = rule("Error in hard, soft or soft_seconds setting in buffer limit configuration.")
	errNotify     = rule("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
	errOOM        = rule("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")
)

// SavePoint is one pair of the save directive: a snapshot is due when Changes
// writes happened within Seconds.
type SavePoint struct {
	Seconds int64
	Changes int32
}

// saveName is the one directive whose lines add up in a file, and which CONFIG
// SET replaces as a whole.
const saveName = "save"

// checkSave reads pairs of seconds and changes and adds them to old; a lone
// empty word clears what came before.
func checkSave(args []string, old string) (string, error) {
	if len(args) == 0 || len(args) == 1 && args[0] == "" {
		return "", nil
	}
	if len(args)%2 != 0 {
		return "", errSave
	}
	words := strings.Fields(old)
	for i := 0; i < len(args); i += 2 {
		sec, ok1 := parseLooseInt(args[i], 10)
		changes, ok2 := parseLooseInt(args[i+1], 10)
		if !ok1 || !ok2 || sec < 1 || changes < 0 {
			return "", errSave
		}
		changes = min(changes, math.MaxInt32)
		words = append(words, strconv.FormatInt(sec, 10), strconv.FormatInt(changes, 10))
	}
	if len(words) > 2*maxSavePoints {
		return "", fmt.Errorf("%d save points are more than %d", len(words)/2, maxSavePoints)
	}
	return strings.Join(words, " "), nil
}

func parseSave(text string) []SavePoint {
	words := strings.Fields(text)
	points := make([]SavePoint, 0, len(words)/2)
	for i := 0; i+1 < len(words); i += 2 {
		sec, _ := strconv.ParseInt(words[i], 10, 64)
		changes, _ := strconv.ParseInt(words[i+1], 10, 32)
		points = append(points, SavePoint{sec, int32(changes)})
	}
	return points
}

// OutputLimit is the output buffer limit of one class of clients. A client over
// HardBytes, or over SoftBytes for SoftSeconds, is closed. 0 is no limit.
type OutputLimit struct {
	HardBytes, SoftBytes uint64
	SoftSeconds          int32
}

// OutputLimits has the limits of each class of clients.
type OutputLimits struct {
	Normal, Replica, PubSub OutputLimit
}

func (l *OutputLimits) class(name string) *OutputLimit {
	switch strings.ToLower(name) {
	case "normal":
		return &l.Normal
	case "slave", "replica":
		return &l.Replica
	case "pubsub":
		return &l.PubSub
	}
	return nil
}

func (l OutputLimits) String() string {
	one := func(name string, c OutputLimit) string {
		return fmt.Sprintf("%s %d %d %d", name, c.HardBytes, c.SoftBytes, c.SoftSeconds)
	}
	return one("normal", l.Normal) + " " + one("slave", l.Replica) + " " + one("pubsub", l.PubSub)
}

// read changes the classes named by args and leaves the others alone.
func (l *OutputLimits) read(args []string) error {
	if len(args)%4 != 0 {
		return errBufferArgs
	}
	for i := 0; i < len(args); i += 4 {
		c := l.class(args[i])
		if c == nil {
			return errBufferKind
		}
		hard, ok1 := parseMemory(args[i+1])
		soft, ok2 := parseMemory(args[i+2])
		sec, ok3 := parseLooseInt(args[i+3], 10)
		if !ok1 || !ok2 || !ok3 || sec < 0 || sec > math.MaxInt32 {
			return errBufferSize
		}
		*c = OutputLimit{hard, soft, int32(sec)}
	}
	return nil
}

func checkOutputLimits(args []string, old string) (string, error) {
	l := parseOutputLimits(old)
	if err := l.read(args); err != nil {
		return "", err
	}
	return l.String(), nil
}

// parseOutputLimits reads canonical text, which has all classes.
func parseOutputLimits(text string) OutputLimits {
	var l OutputLimits
	_ = l.read(strings.Fields(text)) // canonical text is right by construction
	return l
}

// NotifyFlags is a set of event classes of notify-keyspace-events.
type NotifyFlags uint32

// The event classes, named by what happened; the comment has the letter.
const (
	NotifyKeyspace NotifyFlags = 1 << iota // K
	NotifyKeyevent                         // E
	NotifyGeneric                          // g
	NotifyString                           // $
	NotifyList                             // l
	NotifySet                              // s
	NotifyHash                             // h
	NotifyZSet                             // z
	NotifyExpired                          // x
	NotifyEvicted                          // e
	NotifyStream                           // t
	NotifyMiss                             // m, not in A
	NotifyModule                           // d
	NotifyNew                              // n, not in A

	// NotifyAll is what A stands for.
	NotifyAll = NotifyGeneric | NotifyString | NotifyList | NotifySet | NotifyHash | NotifyZSet |
		NotifyExpired | NotifyEvicted | NotifyStream | NotifyModule
)

// notifyLetters lists the classes in the order in which Redis writes them. When
// A is written, those before afterAll are left out; n too, as Redis does.
const (
	notifyLetters = "g$lshzxetdnKEm"
	afterAll      = 11
)

// NotifyFlag is the class of a letter, 0 of one that names none.
func NotifyFlag(letter byte) NotifyFlags {
	switch letter {
	case 'A':
		return NotifyAll
	case 'K':
		return NotifyKeyspace
	case 'E':
		return NotifyKeyevent
	case 'm':
		return NotifyMiss
	case 'n':
		return NotifyNew
	case 'd':
		return NotifyModule
	case 't':
		return NotifyStream
	}
	if i := strings.IndexByte("g$lshzxe", letter); i >= 0 {
		return NotifyGeneric << i
	}
	return 0
}

func parseNotify(text string) (NotifyFlags, bool) {
	var set NotifyFlags
	for i := range len(text) {
		f := NotifyFlag(text[i])
		if f == 0 {
			return 0, false
		}
		set |= f
	}
	return set, true
}

func (set NotifyFlags) String() string {
	var b strings.Builder
	letters := notifyLetters
	if set&NotifyAll == NotifyAll {
		b.WriteByte('A')
		letters = notifyLetters[afterAll:]
	}
	for i := range len(letters) {
		if set&NotifyFlag(letters[i]) != 0 {
			b.WriteByte(letters[i])
		}
	}
	return b.String()
}

func checkNotify(args []string, _ string) (string, error) {
	if len(args) != 1 {
		return "", errArgCount
	}
	set, ok := parseNotify(args[0])
	if !ok {
		return "", errNotify
	}
	return set.String(), nil
}

// checkBind takes up to 16 addresses; a lone empty word is none.
func checkBind(args []string, _ string) (string, error) {
	if len(args) > maxBindAddrs {
		return "", rule("Too many bind addresses specified.")
	}
	for _, a := range args {
		if strings.HasPrefix(a, "#") {
			return "", fmt.Errorf("bind address %s is not an address; a comment stands on a line of its own", quoteValue(a))
		}
		if a == "" && len(args) > 1 || strings.ContainsAny(a, " \t\r\n\x00") {
			return "", fmt.Errorf("bind address %s is not an address", quoteValue(a))
		}
	}
	return strings.Join(args, " "), nil
}

// checkReplicaOf takes a host and a port, or no one.
func checkReplicaOf(args []string, _ string) (string, error) {
	if len(args) != 2 {
		return "", errArgCount
	}
	if strings.EqualFold(args[0], "no") && strings.EqualFold(args[1], "one") {
		return "", nil
	}
	port, ok := parseLooseInt(args[1], 10)
	if !ok || port < 0 || port > math.MaxUint16 {
		return "", rule("Invalid master port")
	}
	if args[0] == "" || strings.ContainsAny(args[0], " \t\r\n\x00") {
		return "", fmt.Errorf("master host %s is not a host", quoteValue(args[0]))
	}
	return args[0] + " " + strconv.FormatInt(port, 10), nil
}

func checkPercentiles(args []string, _ string) (string, error) {
	if len(args) == 1 && args[0] == "" {
		return "", nil
	}
	if len(args) > maxPercentiles {
		return "", fmt.Errorf("%d percentiles are more than %d", len(args), maxPercentiles)
	}
	words := make([]string, 0, len(args))
	for _, a := range args {
		f, err := strconv.ParseFloat(a, 64)
		if err != nil || math.IsNaN(f) || strings.ContainsRune(a, '_') {
			return "", rule("Invalid latency-tracking-info-percentiles parameters")
		}
		if f < 0 || f > 100 {
			return "", rule("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")
		}
		text := strings.TrimRight(strconv.FormatFloat(f, 'f', 6, 64), "0")
		words = append(words, strings.TrimSuffix(text, "."))
	}
	return strings.Join(words, " "), nil
}

func parsePercentiles(text string) []float64 {
	words := strings.Fields(text)
	out := make([]float64, len(words))
	for i, w := range words {
		out[i], _ = strconv.ParseFloat(w, 64)
	}
	return out
}

func checkOOMValues(args []string, _ string) (string, error) {
	if len(args) != 3 {
		return "", errArgCount
	}
	words := make([]string, 0, 3)
	for _, a := range args {
		n, ok := parseLooseInt(a, 10)
		if !ok || n < -2000 || n > 2000 {
			return "", errOOM
		}
		words = append(words, strconv.FormatInt(n, 10))
	}
	return strings.Join(words, " "), nil
}

// checkDir takes a directory that exists and makes its path absolute, relative
// to where the process was started. It does not change to it.
func checkDir(args []string, _ string) (string, error) {
	if len(args) != 1 {
		return "", errArgCount
	}
	if args[0] == "" || strings.IndexByte(args[0], 0) >= 0 {
		return "", rule("No such file or directory")
	}
	path, err := filepath.Abs(args[0])
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		text := errno.Error() // Go writes these in lower case, C with a capital
		return "", rule(strings.ToUpper(text[:1]) + text[1:])
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", rule("Not a directory")
	}
	return path, nil
}

// baseName refuses a path where a plain file name is asked for. what is Redis's
// word for it; an empty name passes if mayBeEmpty.
func baseName(directive, what string, mayBeEmpty bool) func([]string, string) (string, error) {
	return func(args []string, _ string) (string, error) {
		switch {
		case args[0] == "" && !mayBeEmpty:
			return "", fmt.Errorf("%s can't be empty", directive)
		case strings.ContainsAny(args[0], `/\`):
			return "", fmt.Errorf("%s can't be a path, just a %s", directive, what)
		}
		return args[0], nil
	}
}

func checkHostname(args []string, _ string) (string, error) {
	if len(args[0]) >= maxHostname {
		return "", rule(fmt.Sprintf("Hostnames must be less than %d characters", maxHostname))
	}
	for _, c := range []byte(args[0]) {
		if !alphanumeric(c) && c != '-' && c != '.' {
			return "", rule("Hostnames may only contain alphanumeric characters, hyphens or dots")
		}
	}
	return args[0], nil
}

// maxAnnouncedIP is the longest that a message of the cluster bus has room for.
const maxAnnouncedIP = 45

// checkAnnouncedIP refuses what other nodes would not take, and what would break nodes.conf, of which it is a field.
func checkAnnouncedIP(args []string, _ string) (string, error) {
	if len(args[0]) > maxAnnouncedIP {
		return "", rule(fmt.Sprintf("an address is at most %d characters long", maxAnnouncedIP))
	}
	for _, c := range []byte(args[0]) {
		if !alphanumeric(c) && strings.IndexByte("-._:%", c) < 0 {
			return "", rule("an address may only contain alphanumeric characters and - . _ : %")
		}
	}
	return args[0], nil
}

// checkNodename refuses what Redis refuses, and besides that blanks, commas and
// control bytes: the name is a field of nodes.conf, which they separate.
func checkNodename(args []string, _ string) (string, error) {
	for _, c := range []byte(args[0]) {
		if c <= ' ' || c == 0x7f || strings.IndexByte("!#$%&()*+:;<>?@[]^{|}~,", c) >= 0 {
			return "", rule("Announced human node name contained invalid character")
		}
	}
	return args[0], nil
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// checkTitle knows the variables that a process title may hold: {title}; {{ is
// a brace.
func checkTitle(args []string, _ string) (string, error) {
	bad := rule("template format is invalid or contains unknown variables")
	rest, length := args[0], 0
	for {
		before, after, found := strings.Cut(rest, "{")
		length += len(before)
		if !found {
			break
		}
		if quoted, ok := strings.CutPrefix(after, "{"); ok {
			rest, length = quoted, length+1
			continue
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return "", bad
		}
		switch name {
		case "title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file":
			length++
		default:
			return "", bad
		}
		rest = tail
	}
	if length == 0 {
		return "", bad
	}
	return args[0], nil
}

// checkSignal refuses a shutdown that is to save and not to save.
func checkSignal(args []string, _ string) (string, error) {
	if strings.HasPrefix(args[0], "save nosave") {
		return "", errors.New("shutdown options SAVE and NOSAVE can't be used simultaneously")
	}
	return args[0], nil
}

// checkHz keeps the value between 1 and 500: it is a hint, so Redis caps it
// where others would refuse.
func checkHz(args []string, _ string) (string, error) {
	n, _ := strconv.ParseInt(args[0], 10, 64)
	return strconv.FormatInt(min(max(n, 1), 500), 10), nil
}

// checkDatabases makes every count 1, the only one there is.
func checkDatabases([]string, string) (string, error) { return "1", nil }

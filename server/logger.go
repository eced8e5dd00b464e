package server

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cairn/server/config"
)

// Logger writes lines in the form that people who run Redis know, and their tools look for:
//
//	4711:M 29 Nov 2026 10:00:00.123 * Ready to accept connections tcp
//
// The file is opened for each line, so that whoever rotates it need not tell anybody.
type Logger struct {
	mu    sync.Mutex
	path  string
	out   io.Writer
	level atomic.Int32
	role  atomic.Int32
}

// NewLogger writes to path, or to out when path is empty.
func NewLogger(path string, out io.Writer, level config.LogLevel) *Logger {
	l := &Logger{path: path, out: out}
	l.level.Store(int32(level))
	l.role.Store('M')
	return l
}

// SetLevel changes what is written from now on.
func (l *Logger) SetLevel(level config.LogLevel) { l.level.Store(int32(level)) }

// SetRole changes the letter behind the process id: M, S.
func (l *Logger) SetRole(r byte) { l.role.Store(int32(r)) }

// Debug, Verbose, Notice and Warning write an event with its fields.
func (l *Logger) Debug(event string, fields ...any) { l.line(config.LogDebug, '.', event, fields) }

// Verbose is explained at Debug.
func (l *Logger) Verbose(event string, fields ...any) { l.line(config.LogVerbose, '-', event, fields) }

// Notice is explained at Debug.
func (l *Logger) Notice(event string, fields ...any) { l.line(config.LogNotice, '*', event, fields) }

// Warning is explained at Debug.
func (l *Logger) Warning(event string, fields ...any) { l.line(config.LogWarning, '#', event, fields) }

// Event is Notice, for packages that take a plain function.
func (l *Logger) Event(event string, fields ...any) { l.Notice(event, fields...) }

func (l *Logger) line(level config.LogLevel, mark byte, event string, fields []any) {
	if int32(level) < l.level.Load() {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d:%c %s %c %s", os.Getpid(), l.role.Load(), time.Now().Format("02 Jan 2006 15:04:05.000"), mark, event)
	for i := 0; i+1 < len(fields); i += 2 {
		fmt.Fprintf(&b, " %v=%s", fields[i], fieldText(fields[i+1]))
	}
	b.WriteByte('\n')
	l.write(b.String())
}

func fieldText(v any) string {
	text := fmt.Sprint(v)
	if text == "" || strings.ContainsAny(text, " \"\n\r") {
		return strconv.Quote(text)
	}
	return text
}

func (l *Logger) write(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.out
	if l.path != "" {
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return // there is nowhere to say so
		}
		defer f.Close()
		out = f
	}
	_, _ = io.WriteString(out, line) // likewise
}

// Banner is what the log begins with; test runners wait for its words.
func (l *Logger) Banner(version, mode string, port int64) {
	l.write(fmt.Sprintf("\n  cairn %s, speaks Redis 7.2.4\n  Running in %s mode\n  Port: %d\n  PID: %d\n\n", version, mode, port, os.Getpid()))
	l.Notice("Server initialized")
}

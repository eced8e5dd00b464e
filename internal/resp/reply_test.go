package resp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

var replySamples = []string{
	"+OK\r\n", "-ERR no\r\n", ":-12\r\n", "$3\r\na\r\n\r\n", "$0\r\n\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n",
	"*2\r\n:1\r\n*1\r\n+x\r\n", "_\r\n", ",1.5\r\n", ",inf\r\n", ",-nan\r\n", "#t\r\n", "#f\r\n", "(123456789012345678901234567890\r\n",
	"=7\r\ntxt:abc\r\n", "!5\r\nERR x\r\n", "%1\r\n+k\r\n:1\r\n", "~1\r\n:1\r\n", ">2\r\n+message\r\n+x\r\n",
	"|1\r\n+ttl\r\n:3600\r\n*1\r\n:1\r\n", "*1\r\n|1\r\n+a\r\n+b\r\n:5\r\n", "%0\r\n",
	"*4611686018427387904\r\n", "%2305843009213693951\r\n", "$9223372036854775807\r\n", "*9\r\n*9\r\n*9\r\n",
	"x\r\n", "\r\n", "+a\n", ":1a\r\n", "#x\r\n", "$2\r\nabcd", "_x\r\n", "*-2\r\n", "%-1\r\n",
	strings.Repeat("*1\r\n", 70) + ":1\r\n", strings.Repeat("|0\r\n", 70) + ":1\r\n",
}

// show prints a reply so that a difference can be read.
func show(r Reply) string {
	var b strings.Builder
	if r.Attrs != nil {
		b.WriteString("|")
		for _, e := range r.Attrs {
			b.WriteString(show(e) + ",")
		}
		b.WriteString("|")
	}
	fmt.Fprintf(&b, "%c", r.Kind)
	switch r.Kind {
	case KindInt, KindBool:
		fmt.Fprint(&b, r.Int)
	case KindDouble:
		fmt.Fprint(&b, r.Float)
	case KindNull:
	case KindArray, KindMap, KindSet, KindPush:
		b.WriteString("[")
		for _, e := range r.Elems {
			b.WriteString(show(e) + " ")
		}
		b.WriteString("]")
	default:
		fmt.Fprintf(&b, "%q", r.Str)
	}
	return b.String()
}

func TestParseReply(t *testing.T) {
	tests := map[string]string{
		"+OK\r\n":                               `+"OK"`,
		"-ERR no\r\n":                           `-"ERR no"`,
		":-12\r\n":                              `:-12`,
		"$3\r\na\r\n\r\n":                       `$"a\r\n"`,
		"$-1\r\n":                               `_`,
		"*-1\r\n":                               `_`,
		"*2\r\n:1\r\n*1\r\n+x\r\n":              `*[:1 *[+"x" ] ]`,
		"_\r\n":                                 `_`,
		",-inf\r\n":                             `,-Inf`,
		",nan\r\n":                              `,NaN`,
		"#t\r\n":                                `#1`,
		"(123\r\n":                              `("123"`,
		"=7\r\ntxt:abc\r\n":                     `="txt:abc"`,
		"%1\r\n+k\r\n:1\r\n":                    `%[+"k" :1 ]`,
		"~1\r\n:1\r\n":                          `~[:1 ]`,
		">1\r\n+x\r\n":                          `>[+"x" ]`,
		"|1\r\n+ttl\r\n:3600\r\n*1\r\n:1\r\n":   `|+"ttl",:3600,|*[:1 ]`,
		"*1\r\n|1\r\n+a\r\n+b\r\n:5\r\n":        `*[|+"a",+"b",|:5 ]`,
		strings.Repeat("*1\r\n", 64) + ":1\r\n": strings.Repeat("*[", 64) + ":1" + strings.Repeat(" ]", 64),
		"*4611686018427387904\r\n":              "syntax",
		"$9223372036854775807\r\n":              "syntax",
		strings.Repeat("*1\r\n", 65) + ":1\r\n": "syntax",
		"x\r\n":                                 "syntax",
		"\r\n":                                  "syntax",
		"+a\n":                                  "syntax",
		":1a\r\n":                               "syntax",
		"#x\r\n":                                "syntax",
		"_x\r\n":                                "syntax",
		"*-2\r\n":                               "syntax",
		"%-1\r\n":                               "syntax",
		"$2\r\nabcd":                            "syntax",
		"*1000000000\r\n:1\r\n":                 "incomplete",
		"+" + strings.Repeat("a", maxReplyLine-1): "syntax",
	}
	for src, want := range tests {
		v, n, err := ParseReply([]byte(src + ":99\r\n"))
		got := show(v)
		var se *SyntaxError
		switch {
		case errors.As(err, &se):
			got = "syntax"
		case n == 0:
			got = "incomplete"
		case n != len(src):
			t.Errorf("%.40q: %d bytes, want %d", src, n, len(src))
		}
		if got != want {
			t.Errorf("%.40q: %s, want %s", src, got, want)
		}
		if want == "syntax" || want == "incomplete" {
			continue
		}
		for k := range len(src) {
			if _, n, err := ParseReply([]byte(src[:k])); n != 0 || err != nil {
				t.Errorf("%.40q cut at %d: %d, %v", src, k, n, err)
			}
		}
	}
}

func TestReplyScannerSequence(t *testing.T) {
	src := []byte("*2\r\n$3\r\nabc\r\n%1\r\n+a\r\n*0\r\n+OK\r\n")
	var s ReplyScanner
	var ends []int
	at := 0
	for k := range len(src) + 1 {
		n, err := s.End(src[at:k])
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			at += n
			ends = append(ends, at)
		}
	}
	if fmt.Sprint(ends) != "[25 30]" {
		t.Errorf("ends %v, want [25 30]", ends)
	}
}

func TestNextCommand(t *testing.T) {
	src := AppendCommandStrings(nil, "SET", "k", "a\r\nb")
	src = AppendCommandStrings(src, "DEL", "")
	var args [][]byte
	var got []string
	for len(src) > 0 {
		out, n, err := NextCommand(src, args[:0])
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		args = out
		got = append(got, fmt.Sprintf("%q", args))
		src = src[n:]
	}
	if want := `["SET" "k" "a\r\nb"]["DEL" ""]`; strings.Join(got, "") != want {
		t.Errorf("%s, want %s", got, want)
	}
	for src, want := range map[string]string{
		"PING\r\n":                       `command: byte 0: 'P', want '*'`,
		"*0\r\n":                         `command: byte 0: 0 arguments, want 1 to 2147483647`,
		"*1\n":                           `command: byte 0: bad length line "*1\n"`,
		"*1\r\n$-1\r\n":                  `command: byte 4: argument of -1 bytes, want 0 or more`,
		"*1\r\n$1\r\nabc":                `command: byte 9: argument ends in "bc", want CR LF`,
		"*1\r\n+PING\r\n":                `command: byte 4: '+', want '$'`,
		"*" + strings.Repeat("1", 30):    `command: byte 0: no line end within 23 bytes`,
		"*1\r\n$9223372036854775808\r\n": `command: byte 4: bad length line "$9223372036854775808\r\n"`,
	} {
		if _, _, err := NextCommand([]byte(src), nil); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", src, err, want)
		}
	}
	if _, n, err := NextCommand([]byte("*2147483647\r\n$9223372036854775807\r\n"), nil); n != 0 || err != nil {
		t.Errorf("a length beyond the input: %d, %v", n, err)
	}
}

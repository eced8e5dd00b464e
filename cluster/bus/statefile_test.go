package bus

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"cairn/cluster"
	"cairn/cluster/nodesconf"
	"cairn/internal/testkit"
)

// stateAt is a state of a node that differs with the epoch.
func stateAt(epoch uint64) *cluster.State {
	s := fresh(17000)()
	s.CurrentEpoch = epoch
	for i := range epoch { // the file changes its length, too
		s.Nodes = append(s.Nodes, nodesconf.Node{ID: idOf(int(i)), Flags: nodesconf.Primary})
	}
	return s
}

// TestCrashWhileSaving cuts the power before every operation of several saves, the first included, with every possible part
// of what was not synced, and opens what is left: the content before the save, or the one after it.
func TestCrashWhileSaving(t *testing.T) {
	t.Parallel()
	for _, percent := range []int{0, 30, 70, 100} {
		for seed := range uint64(40) {
			rng := rand.New(rand.NewPCG(seed, uint64(percent)))
			disk := vfs.NewCrashableMem()
			makeDirs(t, disk)
			var saving uint64 // the epoch that is being saved
			type crash struct {
				disk   *vfs.MemFS
				saving uint64
				before string
			}
			var crashes []crash
			var one sync.Mutex // at a time: two files are written at once
			fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				one.Lock()
				defer one.Unlock()
				if saving > 0 {
					crashes = append(crashes, crash{
						disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), saving, fmt.Sprint(op.Kind, " ", op.Path),
					})
				}
				return nil
			}))
			f, state, err := openState(fs, "dir/nodes.conf", "dir/data")
			if err != nil || state != nil {
				t.Fatalf("%v, %v", state, err)
			}
			const saves = 4
			for saving = 1; saving <= saves; saving++ {
				if err := f.save(stateAt(saving)); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range crashes {
				_, state, err := openState(c.disk, "dir/nodes.conf", "dir/data")
				switch {
				case err != nil:
					t.Fatalf("%d %% kept, seed %d, save %d, crash before %s: %v", percent, seed, c.saving, c.before, err)
				case state == nil && c.saving == 1:
				case state == nil || state.CurrentEpoch != c.saving && state.CurrentEpoch != c.saving-1:
					t.Fatalf("%d %% kept, seed %d, save %d, crash before %s: %+v", percent, seed, c.saving, c.before, state)
				case !bytes.Equal(state.Append(nil), stateAt(state.CurrentEpoch).Append(nil)):
					t.Fatalf("save %d, crash before %s: the content is another one", c.saving, c.before)
				}
			}
			if len(crashes) < 10*saves {
				t.Fatalf("%d crashes in %d saves: the hook is not where it should be", len(crashes), saves)
			}
			after := disk.CrashClone(vfs.CrashCloneCfg{})
			if _, state, err := openState(after, "dir/nodes.conf", "dir/data"); err != nil || state.CurrentEpoch != saves {
				t.Fatalf("after the last save: %+v, %v", state, err)
			}
		}
	}
}

// makeDirs makes the folders, durable, as they are long before a node saves.
func makeDirs(t *testing.T, fs vfs.FS) {
	t.Helper()
	if err := fs.MkdirAll("dir/data", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "dir", "dir/data"} {
		d, err := fs.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// saved gives a folder with a file that was saved twice.
func saved(t *testing.T) (path, data string) {
	t.Helper()
	dir := t.TempDir()
	path, data = filepath.Join(dir, "nodes.conf"), filepath.Join(dir, "data")
	f, _, err := openState(vfs.Default, path, data)
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range uint64(2) {
		if err := f.save(stateAt(epoch + 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	return path, data
}

// TestDamagedFile: a file that is not what this node wrote is refused, with the way out, and the way out works.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	read := func(path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	write := func(path string, text []byte) {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	type files struct{ path, beside string }
	putBack := func(f files) { write(f.path, read(f.beside+".old")) }
	accept := func(f files) { os.Remove(f.beside + ".crc") }
	for _, c := range []struct {
		what   string
		damage func(f files)
		text   string
		mend   func(f files)
		epoch  uint64 // after mend
	}{
		{"cut", func(f files) { write(f.path, read(f.path)[:100]) }, "cut short", putBack, 1},
		{"emptied", func(f files) { write(f.path, nil) }, ".old", putBack, 1},
		{"a bit flipped", func(f files) { b := read(f.path); b[3] ^= 1; write(f.path, b) }, "not what this node wrote", putBack, 1},
		{"altered on purpose", func(f files) {
			write(f.path, bytes.Replace(read(f.path), []byte("currentEpoch 2"), []byte("currentEpoch 9"), 1))
		}, "remove " + "", accept, 9},
		{"another node's", func(f files) { write(f.path, stateAt(5).Append(nil)) }, "remove ", accept, 5},
		{"removed", func(f files) { os.Remove(f.path) }, "it is gone", putBack, 1},
		{"removed, to begin anew", func(f files) { os.Remove(f.path) }, "begin as a new node", accept, 0},
		{"old content", putBack, "", nil, 1}, // as after a crash in a save
		{"checksums cut", func(f files) { write(f.beside+".crc", read(f.beside + ".crc")[:5]) }, "remove ", accept, 2},
		{"without checksums", accept, "", nil, 2},
	} {
		path, data := saved(t)
		f := files{path, filepath.Join(data, "nodes.conf")}
		c.damage(f)
		opened, state, err := openState(vfs.Default, path, data)
		if c.text != "" {
			if err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, want an error that names the file and has %q", c.what, err, c.text)
				continue
			}
			c.mend(f)
			if opened, state, err = openState(vfs.Default, path, data); err != nil {
				t.Errorf("%s, after the way out: %v", c.what, err)
				continue
			}
		}
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if c.epoch == 0 != (state == nil) || state != nil && state.CurrentEpoch != c.epoch {
			t.Errorf("%s: %+v, want epoch %d", c.what, state, c.epoch)
		}
		if err := errors.Join(opened.save(stateAt(20)), opened.close()); err != nil {
			t.Errorf("%s: save after it: %v", c.what, err)
		}
	}
}

// TestFlippedBits: no bit of the file changes unnoticed. One of each byte is tried.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	path, data := saved(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range text {
		bit := 8*at + at%8
		flipped := bytes.Clone(text)
		flipped[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, flipped, 0o644); err != nil {
			t.Fatal(err)
		}
		if f, _, err := openState(vfs.Default, path, data); err == nil {
			t.Errorf("bit %d flipped: taken", bit)
			f.close()
		}
	}
}

// TestFilesOfOthers: what Redis and Valkey wrote is taken over as it is.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	const me, other, shard = "07c37dfeb235213a872192d90877d0cd55635b91", "e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca", "f00d1eecce10fd6bb5eb35b9f99a514335d9ba9c"
	for _, c := range []struct{ what, text string }{
		{"Redis 7.0, with the blank tail of a longer one", me + " 127.0.0.1:7000@17000 myself,master - 0 0 3 connected 0-5460\n" +
			other + " 127.0.0.1:7001@17001 slave " + me + " 0 1700000000000 3 connected\nvars currentEpoch 4 lastVoteEpoch 2\n\n\n\n\n"},
		{"Redis 7.2", me + " 127.0.0.1:7000@17000,,tls-port=0,shard-id=" + shard + " myself,master - 0 0 3 connected 0-5460\n" +
			other + " 127.0.0.1:7001@17001,host.example,tls-port=0,nodename=b,shard-id=" + shard + " slave " + me + " 0 1700000000000 3 connected\n" +
			"vars currentEpoch 4 lastVoteEpoch 2\n"},
		{"Valkey 8", me + " 127.0.0.1:7000@17000,,client-ipv6=fe80::1,client-ipv4=10.0.0.1,tls-port=0,shard-id=" + shard + " myself,primary - 0 0 3 connected 0-5460\n" +
			other + " 127.0.0.1:7001@17001,,tls-port=0,shard-id=" + shard + " replica " + me + " 0 1700000000000 3 connected\n" +
			"vars currentEpoch 4 lastVoteEpoch 2\n"},
	} {
		r := &recorder{}
		o := options(t, r, 17000)
		if err := os.WriteFile(o.Path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		d, err := Load(o, func() *cluster.State { t.Errorf("%s: begins anew", c.what); return fresh(17000)() })
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		v := d.View()
		if d.ID() != me || v.CurrentEpoch != 4 || v.Nodes[v.Myself].Slots[0].Last != 5460 || v.MyEpoch != 3 {
			t.Errorf("%s: %s, epochs %d and %d", c.what, d.ID(), v.CurrentEpoch, v.MyEpoch)
		}
		if len(v.Nodes) != 2 || v.Nodes[1].PrimaryID != me {
			t.Errorf("%s: %+v", c.what, v.Nodes)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFileOfARealServer takes over what the installed server wrote.
func TestFileOfARealServer(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	server.client.Do("CLUSTER", "ADDSLOTSRANGE", "5", "100")
	server.client.Do("CLUSTER", "SET-CONFIG-EPOCH", "6")
	server.client.Do("CLUSTER", "SAVECONFIG")
	server.Kill()
	o := options(t, &recorder{}, 17000)
	o.Path = filepath.Join(server.Dir, "nodes.conf")
	d, err := Load(o, fresh(17000))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	v := d.View()
	if d.ID() != server.id || v.MyEpoch != 6 || len(v.Nodes[v.Myself].Slots) != 1 {
		t.Errorf("%s, want %s; epoch %d, %+v", d.ID(), server.id, v.MyEpoch, v.Nodes[v.Myself])
	}
}

const lockEnv = "CAIRN_TEST_LOCK"

// TestSecondProcess: the file belongs to one process at a time, and to the next as soon as that one is gone, killed or not.
func TestSecondProcess(t *testing.T) {
	if dir := os.Getenv(lockEnv); dir != "" { // the second process
		_, _, err := openState(vfs.Default, filepath.Join(dir, "nodes.conf"), filepath.Join(dir, "data"))
		fmt.Println("outcome:", err)
		os.Exit(0) // without closing it
	}
	t.Parallel()
	path, data := saved(t)
	second := func() string {
		cmd := exec.Command(os.Args[0], "-test.run", "TestSecondProcess$")
		cmd.Env = append(os.Environ(), lockEnv+"="+filepath.Dir(path))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	f, _, err := openState(vfs.Default, path, data)
	if err != nil {
		t.Fatal(err)
	}
	if out := second(); !strings.Contains(out, "in use by another process") {
		t.Errorf("a second process got %s", out)
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	if out := second(); !strings.Contains(out, "outcome: <nil>") {
		t.Errorf("after the end of the first, another process got %s", out)
	}
	if f, _, err = openState(vfs.Default, path, data); err != nil { // the last one did not close it
		t.Fatal(err)
	}
	f.close()
}

// TestDiskFull: an error of the disk is told once and is final: the command that waits for the save ends with an error, what
// depends on it is not sent, and Close works even from there.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpRename} {
		var full atomic.Bool
		failed := make(chan error, 2)
		var a *member
		a = start(t, func(o *Options) {
			o.FS = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if full.Load() && op.Kind == kind {
					return errors.New("no space left")
				}
				return nil
			}))
			o.Failed = func(err error) {
				failed <- err
				a.Close()
				failed <- nil
			}
		})
		full.Store(true)
		ans := a.Do(cluster.CmdSetConfigEpoch{Epoch: 5})
		if ans.Err == nil {
			t.Errorf("%v: a command was answered although nothing could be saved", kind)
		}
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%v: told %v", kind, err)
		}
		<-failed // closed from there
	}
}

// TestFullDiskLeavesTheFile: what failed to be saved did not harm what was.
func TestFullDiskLeavesTheFile(t *testing.T) {
	t.Parallel()
	path, data := saved(t)
	var count atomic.Int32
	for at := range int32(40) {
		count.Store(0)
		done := false
		f, state, err := openState(errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if done && op.Kind != errorfs.OpFileClose && count.Add(1) == at {
				return errors.New("no space left")
			}
			return nil
		})), path, data)
		if err != nil || state.CurrentEpoch == 0 {
			t.Fatalf("after an error at operation %d: %v", at-1, err)
		}
		done = true
		_ = f.save(stateAt(10 + uint64(at))) // may fail
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, soon, func() bool { return count.Load() > 10 }, "the errors were in the save")
}

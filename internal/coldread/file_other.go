//go:build !(linux && (amd64 || arm64))

package coldread

// File reads as its source does.
type File struct{ src Source }

// Queue has nothing to do here.
type Queue struct{}

// New makes a File of src.
func New(_ *Queue, src Source, _ string) *File { return &File{src} }

// Close has nothing to wait for.
func (f *File) Close() {}

// ReadAt is io.ReaderAt's.
func (f *File) ReadAt(p []byte, pos int64) (n int, err error) { return f.src.ReadAt(p, pos) }

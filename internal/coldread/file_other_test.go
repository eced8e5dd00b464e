//go:build !(linux && (amd64 || arm64))

package coldread

import (
	"os"
	"testing"
)

func forget(*testing.T, *os.File) {}

//go:build !linux

package bench

import (
	"context"
	"time"
)

func diskReads(context.Context, string, int, time.Duration) (float64, error) { return 0, errLinux }

func diskWrites(context.Context, string) error { return errLinux }

//go:build !linux

package main

import "fmt"

// newSpaces has no means here.
func newSpaces(int) (fabric, error) {
	return nil, fmt.Errorf("%w: network namespaces are Linux's", errCannot)
}

//go:build invariants

package main

// buildTags is what the programs under test are built with: as the tests are.
const buildTags = "invariants"

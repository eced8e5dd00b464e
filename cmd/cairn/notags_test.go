//go:build !invariants

package main

const buildTags = ""

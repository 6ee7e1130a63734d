//go:build !linux

package main

func hostRoot(string) string { return "" }

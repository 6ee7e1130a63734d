//go:build !race

package migrate_test

// stride is how many requests lie between two that fail.
const stride = 1

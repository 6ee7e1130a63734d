// Package sabotage proves that test/escape can fail: each of its tests builds a
// flexdriver that lacks one check, attacks it, and wants the escape that is meant to
// be found.
//
//	make test-escape-sabotage                        # all, ten minutes on two cores
//	make test-escape-sabotage SABOTAGE=no-roots
package sabotage

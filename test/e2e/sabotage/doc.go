// Package sabotage proves that the scenarios of test/e2e can fail: each of its
// tests breaks one thing on purpose, in the source of the programs or in the
// manifests, installs that on a node of its own, and wants the scenario to find it.
//
//	make e2e-sabotage                        # all, three quarters of an hour on two cores
//	make e2e-sabotage SABOTAGE=no-detach
//
// What the scenario said is in bin/e2e/sabotage/NAME/output.txt.
package sabotage

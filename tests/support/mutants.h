// Runs a whole test program on wrong graphs, to see that it notices: with
// TEMPER_TEST_MUTANT=<name> in the environment, each graph that is compiled is
// changed by that mutant. scripts/check-mutants runs them all.
#pragma once

namespace temper::testing {

/// Registers an environment of the test program that switches the mutant on,
/// and says at the end, and for each test suite, how many graphs it changed, if
/// there is one in the environment. True iff there is; ends the program if
/// nobody knows its name ("list" is answered with all names).
bool install_mutant();

/// Says the same of what a child process of a test did: the graphs that it
/// changes are not counted in its parent.
void report_mutant_of_a_child(bool failed);

} // namespace temper::testing

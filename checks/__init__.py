"""How the library is attacked: promises, mutants, odd inputs, faults, releases."""

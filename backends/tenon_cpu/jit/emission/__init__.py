"""LLVM text: of functions, formulas and loops."""

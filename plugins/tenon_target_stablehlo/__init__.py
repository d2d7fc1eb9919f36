"""First-party plugin ``tenon_target_stablehlo``: the export target ``stablehlo``."""

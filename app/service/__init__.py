"""What a caller may do: one async function a verb. No framework, no database driver."""

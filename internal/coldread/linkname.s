// The compiler takes functions without a body only where there is assembly.

"""What a diagnosis reads and says: findings, remarks of the compiler, facts of passes and rules."""

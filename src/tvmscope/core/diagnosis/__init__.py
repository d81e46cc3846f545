"""The data of a diagnosis: findings, remarks of the compiler, facts about passes and rules."""

"""The data of a diagnosis: findings, remarks of the compiler, facts about passes and rules.

The compiler's manifests and the rules make them, sessions store them, reports read them.
"""

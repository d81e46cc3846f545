"""Why a model is as slow as it is: rules over a session, each with evidence, worth and advice."""

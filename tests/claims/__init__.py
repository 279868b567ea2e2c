"""The papers' claims as tests; the letter and number in a test's name is the claim's."""

"""Parts of the judge reward: question templates, backends, the parser and the cache of replies."""

"""What the judge reward is made of: a template that words the question, whoever answers it (a
server or a model in this process), the parser of replies, and the replies that are kept on disk."""

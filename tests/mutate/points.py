# SPDX-License-Identifier: MIT
"""The small wrong changes that a C file allows.

A tokenizer, not a parser: it leaves out comments, strings and preprocessor lines, and what is outside of functions.  A
change that does not compile is drawn again by the caller.
"""
import collections
import re

Point = collections.namedtuple("Point", "path start end text kind")

TOKEN = re.compile(r"""
    (?P<gap>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<line>^[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<string>[LuU]?"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<number>(?:0[xX][0-9a-fA-F]+|[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?)[uUlLfF]*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
""", re.X | re.S | re.M)
Token = collections.namedtuple("Token", "kind text start end")

COMPARE = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
LOGIC = {"&&": "||", "||": "&&"}
ARITHMETIC = {"+": "-", "-": "+", "+=": "-=", "-=": "+=", "++": "--", "--": "++", "<<": ">>", ">>": "<<", "&": "|",
              "|": "&", "|=": "&=", "&=": "|=", "*": "+", "/": "*", "%": "+"}
ONLY_BINARY = {"+", "-", "&", "*"}
ORDERED = {"-", "/", "%", "<<", ">>"}
OPENING, CLOSING = "([{", ")]}"
TYPES = set("void char short int long float double signed unsigned bool struct union enum const static volatile extern "
            "register inline size_t ssize_t _Atomic _Thread_local typedef".split())
KEYWORDS = TYPES | set("if else for while do switch case default return goto break continue sizeof typeof __asm__ asm".split())
# Their loss shows in nothing that the program promises: what the log says, and checks of debug builds.
SILENT = re.compile(r"^(gp_log|gp_debug|gp_warn|log_|GP_ASSERT|assert|_Static_assert|static_assert|GP_TESTPOINT|gp_testpoint)")


def tokens_of(text):
    found, names = [], ("line", "string", "number", "name", "sign")
    for match in TOKEN.finditer(text):
        if match.lastgroup in names and match.lastgroup != "line":
            found.append(Token(match.lastgroup, match.group(), match.start(), match.end()))
    return found


class Source:
    def __init__(self, path, text):
        self.path, self.text, self.tokens, self.points = path, text, tokens_of(text), []
        self.pair()
        for first, last in self.bodies():
            for index in range(first + 1, last):
                self.at(index, first, last)

    def pair(self):
        self.partner, self.in_round, stack = {}, set(), []
        for index, token in enumerate(self.tokens):
            if stack and self.word(stack[-1]) == "(":
                self.in_round.add(index)
            if token.kind != "sign":
                continue
            if token.text in OPENING:
                stack.append(index)
            elif token.text in CLOSING and stack:
                other = stack.pop()
                self.partner[other], self.partner[index] = index, other

    def bodies(self):
        """The braces of each function."""
        index, found = 0, []
        while index < len(self.tokens):
            if self.word(index) in OPENING and index in self.partner:
                if self.word(index) == "{" and self.word(index - 1) == ")":
                    found.append((index, self.partner[index]))
                index = self.partner[index]
            index += 1
        return found

    def word(self, index):
        return self.tokens[index].text if 0 <= index < len(self.tokens) and self.tokens[index].kind != "string" else ""

    def kind(self, index):
        return self.tokens[index].kind if 0 <= index < len(self.tokens) else ""

    def add(self, first, last, text, kind):
        start, end = self.tokens[first].start, self.tokens[last].end
        self.points.append(Point(self.path, start, end, text, kind))

    def span(self, first, last):
        return self.text[self.tokens[first].start:self.tokens[last].end]

    def ends_value(self, index):
        return self.kind(index) in ("number", "string") or self.word(index) in (")", "]") or (
            self.kind(index) == "name" and self.word(index) not in KEYWORDS)

    def semicolon(self, index):
        while index < len(self.tokens) and self.word(index) != ";":
            if self.word(index) == "}":
                return None
            index = self.partner.get(index, index) + 1 if self.word(index) in OPENING else index + 1
        return index if index < len(self.tokens) else None

    def statement_end(self, index):
        """The last token of the statement that starts at INDEX."""
        word = self.word(index)
        if word == "{":
            return self.partner.get(index)
        if word in ("if", "for", "while", "switch"):
            end = self.statement_end(self.partner[index + 1] + 1)
            if word == "if" and end is not None and self.word(end + 1) == "else":
                return self.statement_end(end + 2)
            return end
        if word == "do":
            end = self.statement_end(index + 1)
            return None if end is None else self.semicolon(end + 1)
        return self.semicolon(index)

    def chain(self, index, step):
        """The other end of a plain operand, such as a->b.c or 12, that starts or ends at INDEX; None if it is not plain."""
        if self.kind(index) not in ("name", "number") or self.word(index) in KEYWORDS:
            return None
        while self.word(index + step) in (".", "->") and self.kind(index + 2 * step) == "name":
            index += 2 * step
        return index if self.word(index + step) not in ("(", ")", "[", "]", "*", "++", "--", "!", "~") or (
            self.word(index + step) == ")" and step > 0) or (self.word(index + step) == "(" and step < 0) else None

    def starts_statement(self, index):
        before = self.word(index - 1)
        if index in self.in_round:
            return False  # a part of for (;;)
        if before in (";", "{", "}", "else", "do"):
            return True
        if before == ")":
            opening = self.partner.get(index - 1)
            return opening is not None and self.word(opening - 1) in ("if", "for", "while", "switch")
        if before == ":":
            return self.word(index - 2) == "default" or self.word(index - 3) == "case"
        return False

    def at(self, index, first, last):
        token = self.tokens[index]
        word = token.text
        if token.kind == "sign":
            self.sign(index, word)
        elif token.kind == "number":
            self.number(index, word)
        elif token.kind == "name" and word in ("true", "false"):
            self.add(index, index, "false" if word == "true" else "true", "constant")
        if token.kind == "name" and word in ("if", "while") and self.word(index + 1) == "(":
            close = self.partner[index + 1]
            self.add(index + 1, close, "(!" + self.span(index + 1, close) + ")", "condition")
        if token.kind == "name" and word == "else":
            end = self.statement_end(index + 1)
            if end is not None:
                self.add(index, end, "", "else")
        if token.kind != "string" and self.starts_statement(index):
            self.statement(index, word, last)
        if word == "(" and self.kind(index - 1) == "name" and self.word(index - 1) not in KEYWORDS:
            self.arguments(index)

    def sign(self, index, word):
        if word in COMPARE:
            for other in COMPARE[word]:
                self.add(index, index, other, "comparison")
        elif word in LOGIC:
            self.add(index, index, LOGIC[word], "logic")
        elif word == "!":
            self.add(index, index, "", "condition")
        elif word in ARITHMETIC and (word not in ONLY_BINARY or self.ends_value(index - 1)):
            # A declaration's asterisk follows a name too; it stands at the name that comes after.
            if not (word == "*" and self.text[self.tokens[index].end] != " "):
                self.add(index, index, ARITHMETIC[word], "arithmetic")
        if word in ORDERED and self.ends_value(index - 1):
            left, right = self.chain(index - 1, -1), self.chain(index + 1, 1)
            if left is not None and right is not None and self.span(left, index - 1) != self.span(index + 1, right):
                self.add(left, right, f"{self.span(index + 1, right)} {word} {self.span(left, index - 1)}", "operands")

    def in_declared_size(self, index):
        """True inside the brackets that give the size of a local array: only sanitizers see that it is off by one."""
        while index >= 0 and self.word(index) not in ("[", ";", "{", "}", "]", "="):
            index -= 1
        first = index - 1
        listed = self.word(index - 2) == "," and index not in self.in_round  # char file[48], name[64];
        while listed and first > 0 and self.word(first - 1) not in (";", "{", "}"):
            first -= 1
        return self.word(index) == "[" and self.kind(index - 1) == "name" and (
            self.word(first) in TYPES or
            (self.kind(index - 2) == "name" and self.word(index - 2) not in KEYWORDS - TYPES) or
            (self.word(index - 2) == "*" and self.text[self.tokens[index - 2].end] != " "))

    def in_room(self, index):
        """True in the arguments of calloc and its like: only sanitizers see that a table is off by one."""
        while index > 0 and self.word(index) not in (";", "{", "}"):
            if self.word(index) == "(" and self.word(index - 1) in ("malloc", "calloc", "realloc"):
                return True
            index = self.partner.get(index, index) - 1 if self.word(index) in (")", "]") else index - 1
        return False

    def number(self, index, word):
        if self.in_declared_size(index):
            return
        match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|[0-9]+)([uUlL]*)", word)
        if not match:
            return
        value = int(match.group(1), 0) if match.group(1)[:2].lower() == "0x" else int(match.group(1), 10)
        show = hex if match.group(1)[:2].lower() == "0x" else str
        if self.in_room(index):
            return
        self.add(index, index, show(value + 1) + match.group(2), "constant")
        if value > 0:
            self.add(index, index, show(value - 1) + match.group(2), "constant")

    def statement(self, index, word, last):
        if word in ("break", "continue", "goto") or (word == "return" and self.word(index - 1) == ")"):
            end = self.semicolon(index)
            if end is not None:
                self.add(index, end, ";", "statement")
            return
        if self.kind(index) == "name":
            following = self.tokens[index + 1]
            if word in KEYWORDS or following.kind == "name" or SILENT.match(word) or following.text == ":":
                return
            if following.text == "*" and self.text[following.end] != " ":
                return  # a declaration of a pointer
        elif word not in ("*", "(", "++", "--") or (word == "(" and self.word(index + 1) == "void"):
            return
        end = self.semicolon(index)
        if end is not None and end < last:
            self.add(index, end, ";", "statement")

    def arguments(self, index):
        close, start, plain = self.partner.get(index), index + 1, []
        if close is None:
            return
        place = start
        while place <= close:
            if place == close or self.word(place) == ",":
                if place > start:
                    end = self.chain(start, 1)
                    plain.append((start, place - 1) if end == place - 1 else None)
                start = place + 1
            elif self.word(place) in OPENING:
                place = self.partner.get(place, place)
            place += 1
        for one, two in zip(plain, plain[1:]):
            if one and two and self.span(*one) != self.span(*two):
                self.add(one[0], two[1], f"{self.span(*two)}, {self.span(*one)}", "operands")


def points_of(path, text):
    return Source(path, text).points

"""Expressions that are compared with the SDK's own mapper."""

from __future__ import annotations

from typing import Any

STREAM = "orders"
CONFIG: dict[str, Any] = {"prefix": "id-", "limit": 3, "rate": 0.5, "codes": {"a": "A", "b": "B"}}

NAMES_AND_NUMBERS = """
name
record['name']
_['name']
self
id
n + 1
n + m
n - m
n * 2
n * m
n / m
n // m
n % m
n // 7
n % 7
-n // 7
n % -7
-n
+n
~n
n ** 2
n & 6
n | 9
n ^ m
x + y
x - y
x * y
x / y
x // y
x % y
x + n
n * x
n / 2
x / 2
n + flag
flag + flag
-flag
not n
not name
not x
n == m
n != m
n < m
n <= m
n > 0
x >= y
n == x
n < x
n == flag
name == code
name != code
name < code
name >= 'm'
1 < n < 10
0 <= x <= 1
name is None
name is not None
n in [1, 2, 3]
n not in [0, 7]
name in ['a', 'Ab', '']
code in ('x', 'y')
'a' in name
name in 'abc'
code not in name
n and m
n or m
name or 'none'
name and code
flag and n
flag or name
not flag
n or name
'yes' if flag else 'no'
1 if n else 0
name if name else code
n if n is not None else 0
n if n is not None and n > 0 else -1
x if x else 0.5
name == 'Ab' and n > 0
name == 'Ab' or n > 0
True
None
1
1.5
'text'
1 + 2 * 3
'a' * 3
2 ** 10
7 // -2
-7 % 3
1 / 3
config['prefix']
config['limit'] + 1
config['codes']['a']
config['codes'].get('z', '?')
__stream_name__
price
item
item['sku']
item['qty'] + 1
record['item']['sku']
record.get('name')
record.get('name', 'x')
record.get('absent', 'x')
tags
tags[0]
tags[-1]
""".strip().splitlines()

TEXT = """
name + code
name + '!'
'<' + name + '>'
config['prefix'] + name
name * 2
2 * name
name * n
name[0]
name[-1]
name[3]
name[:2]
name[2:]
name[-2:]
name[:-2]
name[1:3]
name[-3:-1]
name[::-1]
name[n:]
name[:n]
name[n:m]
name[n]
name.lower()
name.upper()
name.capitalize()
name.title()
name.swapcase()
name.casefold()
name.strip()
name.lstrip()
name.rstrip()
name.strip('a ')
name.lstrip('x')
name.rstrip(code)
name.replace('a', 'b')
name.replace('a', '')
name.replace(' ', '_').lower()
name.replace('', '-')
name.replace(code, '#')
name.replace('a', 'b', 1)
name.startswith('a')
name.startswith(code)
name.startswith(('a', 'b'))
name.endswith('z')
name.endswith(code)
name.find('a')
name.find(code)
name.rfind('a')
name.rfind(code)
name.index('a')
name.rindex('a')
name.count('a')
name.count(code)
name.count('')
name.split()
name.split()[0]
name.split(',')
name.split(',')[0]
name.split(',')[-1]
name.split('a', 1)
name.split('.')[0]
name.rsplit(',', 1)
name.partition(',')
name.splitlines()
','.join(tags)
'-'.join([name, code])
'+'.join(name.split(','))
name.zfill(8)
name.ljust(6)
name.rjust(6)
name.ljust(6, '*')
name.rjust(6, '*')
name.center(7)
name.center(8, '*')
name.isdigit()
name.isdecimal()
name.isnumeric()
name.isspace()
name.isalpha()
name.isalnum()
name.isascii()
name.islower()
name.isupper()
name.removeprefix('a')
name.removesuffix(code)
name.strip().lower()
name.lower().strip().replace(' ', '-')
name.upper()[:3]
n.lower()
""".strip().splitlines()

FUNCTIONS = """
int(name)
int(code)
int(x)
int(flag)
int(price)
int(n)
int('42')
int(' 4_2 ')
float(name)
float(code)
float(n)
float(flag)
float(price)
float('nan')
float('1e400')
float(' 1_0.5 ')
str(n)
str(flag)
str(name)
str(x)
str(price)
str(tags)
str(None)
str(1.5)
bool(n)
bool(name)
bool(x)
bool(tags)
bool(item)
bool('')
int(name or 0)
int(n or 0) + 1
md5(name)
md5(name + code)
md5(n)
sha256(name)
sha256(str(n))
md5(config['prefix'] + str(id))
json.dumps(n)
json.dumps(flag)
json.dumps(name)
json.dumps(item)
json.loads('{"a": 1}')['a']
f'{name}'
f'{n}'
f'{n}-{name}'
f'{flag} {n} {name}!'
f'{x}'
f'{n:05d}'
f'{n:5}'
f'{n:+d}'
f'{n:,}'
f'{n:_}'
f'{n:<6}|'
f'{n:>6}|'
f'{n:^7}|'
f'{n:*^7d}|'
f'{n:x}'
f'{name:10}|'
f'{name:>10}|'
f'{name:^9}|'
f'{name:.2}|'
f'{name:-<8.3}|'
f'{x:.2f}'
f'{n}{{}}'
f'{name.lower()}_{n + 1}'
""".strip().splitlines()

DATES = """
datetime.date.fromisoformat(day)
datetime.date.fromisoformat(name)
datetime.date.fromisoformat(day).isoformat()
datetime.date.fromisoformat(day).year
datetime.date.fromisoformat(day).month
datetime.date.fromisoformat(day).day
datetime.date.fromisoformat(day).weekday()
datetime.date.fromisoformat(day).isoweekday()
datetime.date.fromisoformat(day).toordinal()
datetime.date.fromisoformat(day).strftime('%Y-%m')
datetime.date.fromisoformat(day).strftime('%d/%m/%Y %H:%M:%S %% %j %y')
datetime.date.fromisoformat(day) + datetime.timedelta(days=30)
datetime.date.fromisoformat(day) - datetime.timedelta(days=1, hours=30)
datetime.timedelta(weeks=1) + datetime.date.fromisoformat(day)
datetime.date.fromisoformat(day) < datetime.date(2024, 1, 1)
datetime.date.fromisoformat(day) == datetime.date.fromisoformat('2024-02-29')
datetime.datetime.strptime(day, '%Y-%m-%d')
datetime.datetime.strptime(day, '%Y-%m-%d').date()
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S')
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S.%f')
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S').isoformat()
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S.%f').isoformat()
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S').strftime('%Y%m%d%H%M%S')
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S.%f').strftime('%H.%M.%S,%f')
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S').hour
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S').minute + 1
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S.%f').microsecond
datetime.datetime.strptime(ts, '%Y-%m-%dT%H:%M:%S') + datetime.timedelta(hours=36, microseconds=5)
datetime.datetime.strptime(code, '%d.%m.%y')
datetime.datetime.strptime(code, '%m/%d/%Y %H:%M')
datetime.datetime.fromisoformat(ts).isoformat()
datetime.date(2024, 2, 29)
day[:4]
int(day[:4])
ts[:10]
day.split('-')[0] + '-01-01'
""".strip().splitlines()

EXPRESSIONS: list[str] = [*NAMES_AND_NUMBERS, *TEXT, *FUNCTIONS, *DATES]

# Of functions that the SDK's mapper does not have.
MORE = """
len(name)
len(tags)
len(name) > 3
len('abc')
round(x)
round(n)
round(n, 2)
round(x, 2)
round(price)
abs(n)
abs(x)
abs(n - m)
min(n, m)
max(n, 3)
sum([n, m])
name[:len(code)]
name.zfill(len(code) + 3)
""".strip().splitlines()

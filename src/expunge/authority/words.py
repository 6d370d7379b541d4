"""The words of our SQL that the authorities spell each in their own way; everything else in a statement both read.

============================  =========================================================================================
``each_text(:ids)``           Rows ``(key, value)`` of a JSON array of texts, in its order; ``key`` counts from 0.
``each_number(:rids)``        The same of whole numbers.
``each_object(:targets)``     The same of objects, each as JSON.
``each_entry(:told)``         Rows ``(key, value)`` of a JSON object: a name, and a whole number.
``text_in(json, 'name')``     A member of a JSON object as text (an array or object as JSON); NULL where there is none.
``number_in(json, 'name')``   The same as a whole number.
``first_text(json, 'name')``  As ``text_in`` of the first element of an array; ``first_number`` likewise.
``instant_text(column)``      A time as a JSON text: ISO-8601 in UTC with Z, with six digits of a second or none.
``share_text(column)``        A number from 0 to 1 as JSON.
``json_quote(value)``         A text, or a whole number, as JSON.
``instr(text, part)``         Where a text has another inside, counted from 1; 0 where it has not.
``least(one, other)``         The smaller of two values, neither of which is NULL.
``digest(column)``            A number that is the same for the same text: an index of texts of any size is made of it,
                              so it is asked for beside the text. Where an index takes any text it is the text.
``unindexed(column)``         The column, and no index that begins with it is to be taken. Where the planner goes by
                              statistics it is the column.
============================  =========================================================================================

``CROSS JOIN … ON`` keeps the order of the tables for a planner that would take another one; where it knows better it is
a ``JOIN``. Times, flags (1 and 0) and counts are whole numbers of 64 bits; ``TRUE`` and ``FALSE`` are conditions.
"""

import java.io.File;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.test.program.ConfigOptionTestStep;
import org.apache.flink.table.test.program.FailingSqlTestStep;
import org.apache.flink.table.test.program.FailingTableApiTestStep;
import org.apache.flink.table.test.program.FunctionTestStep;
import org.apache.flink.table.test.program.SinkTestStep;
import org.apache.flink.table.test.program.SourceTestStep;
import org.apache.flink.table.test.program.SqlTestStep;
import org.apache.flink.table.test.program.StatementSetTestStep;
import org.apache.flink.table.test.program.TableTestProgram;
import org.apache.flink.table.test.program.TableTestStep;
import org.apache.flink.table.test.program.TestStep;
import org.apache.flink.types.Row;

/**
 * Writes the programs of a jar of Flink's tests as JSON. Called by reading.py: {@code java -cp JARS Programs.java TESTS_JAR FILE}.
 *
 * <p>A value that JSON has no type for is an object with the type in {@code $}.
 */
public class Programs {
    private static Map<String, Object> tagged(String type, Object value) {
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("$", type);
        made.put("v", value);
        return made;
    }

    private static Object value(Object o) {
        if (o == null || o instanceof Boolean || o instanceof String) {
            return o;
        }
        if (o instanceof Number && !(o instanceof BigDecimal)) {
            boolean isNumber = !(o instanceof Double) || Double.isFinite((Double) o);
            return isNumber ? o : tagged("double", o.toString());
        }
        if (o instanceof Row) {
            return row((Row) o);
        }
        if (o instanceof byte[]) {
            StringBuilder digits = new StringBuilder();
            for (byte each : (byte[]) o) {
                digits.append(String.format("%02x", each));
            }
            return tagged("bytes", digits.toString());
        }
        List<Object> values = new ArrayList<>();
        if (o.getClass().isArray()) {
            for (int i = 0; i < Array.getLength(o); i++) {
                values.add(value(Array.get(o, i)));
            }
            return tagged("array", values);
        }
        if (o instanceof List) {
            for (Object each : (List<?>) o) {
                values.add(value(each));
            }
            return tagged("array", values);
        }
        if (o instanceof Map) {
            for (Map.Entry<?, ?> each : ((Map<?, ?>) o).entrySet()) {
                values.add(Arrays.asList(value(each.getKey()), value(each.getValue())));
            }
            return tagged("map", values);
        }
        return tagged(o.getClass().getSimpleName(), o.toString());
    }

    private static Object row(Row row) {
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("$", "row");
        made.put("kind", row.getKind().shortString());
        Set<String> names = row.getFieldNames(false);
        if (names != null) {
            Map<String, Object> fields = new LinkedHashMap<>();
            for (String name : names) {
                fields.put(name, value(row.getField(name)));
            }
            made.put("named", fields);
        } else {
            List<Object> fields = new ArrayList<>();
            for (int i = 0; i < row.getArity(); i++) {
                fields.add(value(row.getField(i)));
            }
            made.put("v", fields);
        }
        return made;
    }

    private static List<Object> rows(List<Row> rows) {
        if (rows == null) {
            return null;
        }
        List<Object> made = new ArrayList<>();
        for (Row each : rows) {
            made.add(row(each));
        }
        return made;
    }

    private static void table(TableTestStep step, Map<String, Object> made) {
        made.put("name", step.name);
        made.put("schema", step.schemaComponents);
        made.put("partition", step.partitionKeys);
        made.put("options", step.options);
        if (step instanceof SourceTestStep) {
            made.put("before", rows(((SourceTestStep) step).dataBeforeRestore));
            made.put("after", rows(((SourceTestStep) step).dataAfterRestore));
        } else if (step instanceof SinkTestStep) {
            SinkTestStep sink = (SinkTestStep) step;
            made.put("before", rows(sink.expectedBeforeRestore));
            made.put("after", rows(sink.expectedAfterRestore));
            made.put("before_texts", sink.expectedBeforeRestoreStrings);
            made.put("after_texts", sink.expectedAfterRestoreStrings);
            made.put("final", rows(sink.expectedMaterializedRows));
            made.put("final_texts", sink.expectedMaterializedStrings);
            made.put("tests_changes", sink.testChangelogData);
        }
    }

    private static Object step(TestStep step) {
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("kind", step.getKind().name());
        if (step instanceof TableTestStep) {
            table((TableTestStep) step, made);
        } else if (step instanceof SqlTestStep) {
            made.put("sql", ((SqlTestStep) step).sql);
        } else if (step instanceof StatementSetTestStep) {
            made.put("statements", ((StatementSetTestStep) step).statements);
        } else if (step instanceof ConfigOptionTestStep) {
            made.put("key", ((ConfigOptionTestStep<?>) step).option.key());
            made.put("value", String.valueOf(((ConfigOptionTestStep<?>) step).value));
        } else if (step instanceof FunctionTestStep) {
            made.put("name", ((FunctionTestStep) step).name);
            made.put("class", ((FunctionTestStep) step).function.getName());
        } else if (step instanceof FailingSqlTestStep) {
            made.put("sql", ((FailingSqlTestStep) step).sql);
            made.put("error", ((FailingSqlTestStep) step).expectedErrorMessage);
        } else if (step instanceof FailingTableApiTestStep) {
            made.put("error", ((FailingTableApiTestStep) step).expectedErrorMessage);
        }
        return made;
    }

    /** {@code as}: what a program is called whose id another one has already; null: its id. */
    private static void collect(Object found, String of, String as, Map<String, Object> out) {
        if (found instanceof TableTestProgram) {
            TableTestProgram program = (TableTestProgram) found;
            Map<String, Object> made = new LinkedHashMap<>();
            List<Object> setup = new ArrayList<>();
            List<Object> run = new ArrayList<>();
            program.setupSteps.forEach(each -> setup.add(step(each)));
            program.runSteps.forEach(each -> run.add(step(each)));
            made.put("setup", setup);
            made.put("run", run);
            String name = of + "/" + program.id;
            if (out.containsKey(name)) {
                if (as == null) {
                    throw new IllegalStateException("two programs are called " + name);
                }
                name += " (" + as + ")";
            }
            out.put(name, made);
        } else if (found instanceof Collection) {
            ((Collection<?>) found).forEach(each -> collect(each, of, null, out));
        }
    }

    private static void collectOf(Class<?> type, Map<String, Object> out) throws ReflectiveOperationException {
        for (Field field : type.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                collect(field.get(null), type.getSimpleName(), field.getName(), out);
            }
        }
        for (Method method : type.getDeclaredMethods()) {
            Class<?> given = method.getReturnType();
            boolean gives = Collection.class.isAssignableFrom(given) || TableTestProgram.class.isAssignableFrom(given);
            boolean isCalled = Modifier.isStatic(method.getModifiers()) && method.getParameterCount() == 0;
            if (type.getSimpleName().endsWith("Programs") && gives && isCalled) {
                method.setAccessible(true);
                collect(method.invoke(null), type.getSimpleName(), null, out);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Set<String> names = new TreeSet<>();
        try (JarFile jar = new JarFile(args[0])) {
            for (JarEntry entry : Collections.list(jar.entries())) {
                String name = entry.getName();
                if (name.matches(".*(TestPrograms?|exec/stream/[A-Za-z]*Test)\\.class")) {
                    names.add(name.replace('/', '.').replace(".class", ""));
                }
            }
        }
        Map<String, Object> out = new LinkedHashMap<>();
        for (String name : names) {
            try {
                collectOf(Class.forName(name), out);
            } catch (ReflectiveOperationException | LinkageError error) {
                System.err.println(name + ": " + error);
            }
        }
        new ObjectMapper().writeValue(new File(args[1]), out);
    }
}
